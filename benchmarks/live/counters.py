"""Batch sizes along the path: messages per append, commit and frame, and wake-ups of each service.

Redis counts the commands of the scripts: only an append has an XLEN, only a commit a PEXPIRE. The kernel counts how
often each thread has waited, which is how often it was woken up.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from controlplane.runtime.redis import Client

APPENDS: Final = "cmdstat_xlen"
COMMITS: Final = "cmdstat_pexpire"
WAITS: Final = "voluntary_ctxt_switches:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Counts since some start."""

    appends: int
    commits: int
    frames: int
    """Frames that the workers received."""
    wake_ups: Mapping[str, int]
    """Wake-ups by process; empty if the kernel does not report them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Divided:
    """Batch sizes of each service during a measurement."""

    messages_per_append: float
    messages_per_commit: float
    frames_per_message: float
    wake_ups_per_s: dict[str, float] = field(default_factory=dict)
    wake_up_us: dict[str, float] = field(default_factory=dict)
    """CPU time of one wake-up."""


def counts(client: Client, processes: Mapping[str, int], *, frames: int) -> Counts:
    """The present counts; ``processes`` by name."""
    commands = client.info("commandstats")
    return Counts(
        appends=commands.get(APPENDS, {}).get("calls", 0),
        commits=commands.get(COMMITS, {}).get("calls", 0),
        frames=frames,
        wake_ups={name: wake_ups(pid) for name, pid in processes.items()},
    )


def wake_ups(pid: int) -> int:
    """Wake-ups of all threads of a process; 0 if the kernel does not report them."""
    total = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        with suppress(OSError):  # the thread has ended
            found = [line for line in status.read_text().splitlines() if line.startswith(WAITS)]
            total += sum(int(line.removeprefix(WAITS)) for line in found)
    return total


def divided(before: Counts, now: Counts, *, messages: int, seconds: float, cost_us: Mapping[str, float]) -> Divided:
    """Batch sizes between two counts, given the number of messages and the CPU time per message of each process."""
    woken = {name: count - before.wake_ups[name] for name, count in now.wake_ups.items()}
    return Divided(
        messages_per_append=messages / max(1, now.appends - before.appends),
        messages_per_commit=messages / max(1, now.commits - before.commits),
        frames_per_message=(now.frames - before.frames) / messages,
        wake_ups_per_s={name: count / seconds for name, count in woken.items() if count},
        wake_up_us={name: cost_us[name] * messages / count for name, count in woken.items() if count},
    )
