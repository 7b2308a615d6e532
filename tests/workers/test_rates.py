"""Disk and network rates of a machine, by counters that stand for its own."""

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.protocol.measurements import OF_MACHINES
from workers.rates import Rates, machine_counts


class Counters:
    """Counters and a clock that move as told."""

    def __init__(self, **counts: int) -> None:
        self.counts, self.now_s = counts, 100.0
        self.rates = Rates(lambda: dict(self.counts), lambda: self.now_s)

    def pass_s(self, seconds: float, **counts: int) -> dict[str, float]:
        self.now_s += seconds
        self.counts = counts
        return self.rates.numbers()


def test_a_rate_is_what_was_counted_per_second() -> None:
    machine = Counters(disk_read=1_000, network_in=50)
    assert machine.pass_s(2.0, disk_read=5_000, network_in=50) == {"disk_read": 2_000.0, "network_in": 0.0}
    assert machine.pass_s(0.5, disk_read=5_100, network_in=150) == {"disk_read": 200.0, "network_in": 200.0}


def test_a_new_or_reset_counter_has_no_rate_yet() -> None:
    machine = Counters(disk_read=1_000)
    assert machine.pass_s(1.0, disk_read=10, network_in=7) == {}
    assert machine.pass_s(1.0, disk_read=30, network_in=8) == {"disk_read": 20.0, "network_in": 1.0}


def test_no_time_is_no_rate() -> None:
    assert Counters(disk_read=1).pass_s(0.0, disk_read=5) == {}


@given(st.lists(st.tuples(st.floats(0.001, 100.0), st.integers(0, 10**12)), max_size=10))
def test_rates_times_their_seconds_are_all_that_was_counted(steps: list[tuple[float, int]]) -> None:
    machine, count, found = Counters(network_out=0), 0, 0.0
    for seconds, more in steps:
        count += more
        found += seconds * machine.pass_s(seconds, network_out=count)["network_out"]
    assert found == pytest.approx(count)


def test_this_machine_counts_what_is_declared() -> None:
    assert machine_counts().keys() <= {each.name for each in OF_MACHINES}


def test_a_machine_without_counters_reports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "disk_io_counters", lambda: None)
    monkeypatch.setattr(psutil, "net_io_counters", lambda pernic: {"lo": object()})
    assert machine_counts() == {}
