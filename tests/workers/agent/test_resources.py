"""Limits and load: from the cgroup where there is one, else from the machine."""

from pathlib import Path

import psutil
import pytest

from workers.resources import Cgroup, Load, Machine


def write(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(f"{content}\n")


def unified(root: Path, *, usage_us: int = 0) -> Cgroup:
    """A v2 container of half a CPU and 1,000 bytes, of which 300 are droppable files."""
    (root / "cgroup").write_text("0::/box/inner\n")
    write(root / "fs" / "box", cpu__max="50000 100000", cpu__stat=f"usage_usec {usage_us}", memory__max="max")
    stat = "anon 10\ninactive_file 300"
    write(
        root / "fs" / "box" / "inner", cpu__max="max 100000", memory__max=1000, memory__current=700, memory__stat=stat
    )
    return Cgroup(mount=root / "fs", membership=root / "cgroup")


def test_the_tightest_limit_on_the_way_up_binds(tmp_path: Path) -> None:
    cgroup = unified(tmp_path)
    assert (cgroup.cpus, cgroup.memory_bytes, cgroup.memory_used_bytes()) == (0.5, 1000, 400)


def test_version_one_is_read_as_well(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("4:memory:/box\n2:cpu,cpuacct:/box\n0::/\n")
    write(tmp_path / "fs" / "cpu" / "box", cpu__cfs_quota_us=150000, cpu__cfs_period_us=100000)
    write(tmp_path / "fs" / "cpuacct" / "box", cpuacct__usage=2_500_000_000)
    stat = "inactive_file 1\ntotal_inactive_file 24"
    memory = tmp_path / "fs" / "memory" / "box"
    write(memory, memory__limit_in_bytes=2048, memory__usage_in_bytes=1024, memory__stat=stat)
    cgroup = Cgroup(mount=tmp_path / "fs", membership=tmp_path / "cgroup")
    assert (cgroup.cpus, cgroup.cpu_seconds(), cgroup.memory_bytes) == (1.5, 2.5, 2048)
    assert cgroup.memory_used_bytes() == 1000


def test_no_limit_is_none(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("4:memory:/\n2:cpu:/\n")
    write(tmp_path / "fs" / "cpu", cpu__cfs_quota_us=-1, cpu__cfs_period_us=100000)
    write(tmp_path / "fs" / "memory", memory__limit_in_bytes=9223372036854771712, memory__usage_in_bytes=5)
    cgroup = Cgroup(mount=tmp_path / "fs", membership=tmp_path / "cgroup")
    assert (cgroup.cpus, cgroup.memory_bytes, cgroup.memory_used_bytes()) == (None, None, None)


@pytest.mark.parametrize(
    ("membership", "folder", "files"),
    [
        ("0::/box\n", "box", {"memory__max": 1000, "memory__events": "oom 4\noom_kill {}"}),
        ("4:memory:/box\n0::/\n", "memory/box", {"memory__limit_in_bytes": 1000, "memory__oom_control": "oom_kill {}"}),
    ],
)
def test_a_kill_for_want_of_memory_is_seen_once(
    tmp_path: Path, membership: str, folder: str, files: dict[str, object]
) -> None:
    def killed(count: int) -> None:
        write(tmp_path / "fs" / folder, **{name: str(text).format(count) for name, text in files.items()})

    (tmp_path / "cgroup").write_text(membership)
    killed(2)
    machine = Machine(Cgroup(mount=tmp_path / "fs", membership=tmp_path / "cgroup"), counters=tmp_path / "none")
    assert not machine.ran_out_of_memory(), "those were killed before"
    killed(3)
    assert machine.ran_out_of_memory()
    assert not machine.ran_out_of_memory()


def test_a_kill_on_a_machine_without_limits_is_seen_in_its_counters(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("0::/\n")
    counters = tmp_path / "vmstat"
    counters.write_text("pgfault 7\noom_kill 0\n")
    machine = Machine(Cgroup(mount=tmp_path / "fs", membership=tmp_path / "cgroup"), counters=counters)
    counters.write_text("pgfault 9\noom_kill 1\n")
    assert machine.ran_out_of_memory()


def test_a_limited_machine_offers_its_limits_and_is_full_at_them(tmp_path: Path) -> None:
    now_s = 0.0
    machine = Machine(unified(tmp_path, usage_us=1_000_000), clock=lambda: now_s)
    assert (machine.cpu_count, machine.memory_bytes) == (1, 1000)
    unified(tmp_path, usage_us=1_400_000)
    now_s = 1.0
    assert machine.load() == Load(cpu=pytest.approx(0.8), memory=0.4)
    unified(tmp_path, usage_us=9_000_000)
    now_s = 2.0
    assert machine.load() == Load(cpu=1.0, memory=0.4)


def test_a_machine_without_limits_reports_its_own_memory(tmp_path: Path) -> None:
    machine = Machine(Cgroup(mount=tmp_path, membership=tmp_path / "none"))
    assert machine.memory_bytes == psutil.virtual_memory().total
    load = machine.load()
    assert 0.0 <= load.cpu <= 1.0
    assert 0.0 < load.memory < 1.0
