"""The machine's resources and load: from the cgroup if it has limits, else of the whole machine.

Supports cgroup v2 and v1. An agent in a container with two CPUs on a host of 64 reports two, and 100 % when both are
busy.
"""

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

UNLIMITED_BYTES = 2**62
"""cgroup v1 represents "no limit" by a number near its maximum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The machine's load, each value as a fraction of the available resource."""

    cpu: float
    memory: float


class Cgroup:
    """Limits and use of this process's cgroup. ``None`` if there is no such limit."""

    def __init__(self, *, mount: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> None:
        paths = _memberships(membership)
        unified = _folders(mount, paths.get(""))
        cpu, usage, memory = (_folders(mount / kind, paths.get(kind)) for kind in ("cpu", "cpuacct", "memory"))
        self._cpu = _tightest([*((f, _quota_v2(f)) for f in unified), *((f, _quota_v1(f)) for f in cpu)])
        self._memory = _tightest(
            [
                *((f, _limit(f / "memory.max")) for f in unified),
                *((f, _limit(f / "memory.limit_in_bytes")) for f in memory),
            ]
        )
        self._v1_usage = usage[0] if usage else None
        self._killing = [*(f / "memory.events" for f in unified), *(f / "memory.oom_control" for f in memory)]

    @property
    def cpus(self) -> float | None:
        """CPUs that it may use."""
        return self._cpu[1] if self._cpu else None

    @property
    def memory_bytes(self) -> int | None:
        """Memory that it may use."""
        return int(self._memory[1]) if self._memory else None

    def cpu_seconds(self) -> float | None:
        """CPU time used in it since it was created."""
        if self._cpu and (used := _field(self._cpu[0] / "cpu.stat", "usage_usec")) is not None:
            return used / 1e6
        if self._v1_usage and (nanoseconds := _number(self._v1_usage / "cpuacct.usage")) is not None:
            return nanoseconds / 1e9
        return None

    def killed_for_memory(self) -> int | None:
        """Number of processes that the kernel killed in it for lack of memory."""
        if not self._memory:
            return None
        return next((count for file in self._killing if (count := _field(file, "oom_kill")) is not None), None)

    def memory_used_bytes(self) -> int | None:
        """Memory in use, without reclaimable page cache."""
        if not self._memory:
            return None
        folder = self._memory[0]
        used = _number(folder / "memory.current") or _number(folder / "memory.usage_in_bytes")
        droppable = _field(folder / "memory.stat", "total_inactive_file")
        if droppable is None:
            droppable = _field(folder / "memory.stat", "inactive_file")
        return None if used is None else max(0, used - (droppable or 0))


class Machine:
    """The machine as its agent offers it. ``load()`` measures since its last call."""

    def __init__(
        self,
        cgroup: Cgroup | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        counters: Path = Path("/proc/vmstat"),
    ) -> None:
        self._cgroup = cgroup or Cgroup()
        self._clock, self._counters = clock, counters
        self._killed = self._killed_for_memory()
        self._at_s, self._used_s = clock(), self._cgroup.cpu_seconds()
        _busy_share()  # the first value is meaningless

    @property
    def cpu_count(self) -> int:
        """CPUs available to processes, rounded up."""
        allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        quota = self._cgroup.cpus
        return max(1, allowed if quota is None else min(allowed, math.ceil(quota)))

    @property
    def memory_bytes(self) -> int:
        """Memory available to processes."""
        total, _ = _physical_memory()
        return min(total, self._cgroup.memory_bytes or total)

    def load(self) -> Load:
        """CPU use since the last call, and memory use now."""
        return Load(cpu=_share(self._cpu()), memory=_share(self._memory()))

    def ran_out_of_memory(self) -> bool:
        """Whether the kernel has killed processes for lack of memory since the last call."""
        before, self._killed = self._killed, self._killed_for_memory()
        return self._killed > before

    def _killed_for_memory(self) -> int:
        """In the cgroup and on the whole machine: either may kill a process."""
        return (self._cgroup.killed_for_memory() or 0) + (_field(self._counters, "oom_kill") or 0)

    def _cpu(self) -> float:
        whole_machine = _busy_share()
        quota, used_s, now_s = self._cgroup.cpus, self._cgroup.cpu_seconds(), self._clock()
        before_s, self._used_s = self._used_s, used_s
        elapsed_s, self._at_s = now_s - self._at_s, now_s
        if quota is None or used_s is None or before_s is None or elapsed_s <= 0.0:
            return whole_machine
        return (used_s - before_s) / (elapsed_s * quota)

    def _memory(self) -> float:
        limit, used = self._cgroup.memory_bytes, self._cgroup.memory_used_bytes()
        total, used_share = _physical_memory()
        return used_share if limit is None or used is None or limit > total else used / limit


def _busy_share() -> float:
    """CPU use of the whole machine since the last call."""
    return float(psutil.cpu_percent(None)) / 100.0  # type: ignore[no-untyped-call]


def _physical_memory() -> tuple[int, float]:
    """Memory of the whole machine in bytes, and the fraction in use."""
    memory = psutil.virtual_memory()  # type: ignore[no-untyped-call]
    return int(memory.total), float(memory.percent) / 100.0


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))


def _memberships(file: Path) -> dict[str, str]:
    """Controller name ("" for v2) to the path of this process's group below its mount."""
    paths: dict[str, str] = {}
    for line in _lines(file):
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    return paths


def _folders(mount: Path, path: str | None) -> list[Path]:
    """The group's folder and its parents up to the mount: each may have a limit."""
    if path is None:
        return []
    parts = [part for part in path.split("/") if part not in {"", ".."}]
    chain = [mount.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]
    return [folder for folder in chain if folder.is_dir()]


def _tightest(limits: list[tuple[Path, float | None]]) -> tuple[Path, float] | None:
    found = [(folder, limit) for folder, limit in limits if limit is not None]
    return min(found, key=lambda pair: pair[1]) if found else None


def _quota_v2(folder: Path) -> float | None:
    for line in _lines(folder / "cpu.max"):
        quota, _, period = line.partition(" ")
        if quota != "max":
            return int(quota) / int(period or 100_000)
    return None


def _quota_v1(folder: Path) -> float | None:
    quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return quota / period if quota and quota > 0 and period else None


def _limit(file: Path) -> float | None:
    value = _number(file)
    return value if value is not None and value < UNLIMITED_BYTES else None


def _field(file: Path, name: str) -> int | None:
    for line in _lines(file):
        key, _, value = line.partition(" ")
        if key == name and value.isdigit():
            return int(value)
    return None


def _number(file: Path) -> int | None:
    for line in _lines(file):
        return int(line) if line.lstrip("-").isdigit() else None
    return None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
