"""The power that a rank reports: counters that stand for RAPL's."""

from pathlib import Path

import pytest
from torch import ones, tensor
from torch.utils.data import TensorDataset

from controlplane.protocol.messages import IterationReport
from controlplane.protocol.meters import ProcessorMeter, Rapl, Zone
from paceline import energy, reporting
from paceline.energy import Power, rapl_of
from tests.paceline.ranks import paced


class Counters:
    """A processor that this process has to itself, and a clock."""

    def __init__(self) -> None:
        self.now_s, self.joules, self.read = 0.0, 0.0, 0

    def _read_uj(self) -> int:
        self.read += 1
        return int(self.joules * 1e6)

    def meter(self, device: object = None) -> ProcessorMeter:
        return ProcessorMeter(Rapl([Zone(self._read_uj, 0)]), lambda: self.now_s, lambda: self.now_s)

    def passes(self, seconds: float, watts: float) -> None:
        self.now_s += seconds
        self.joules += watts * seconds


def test_power_is_the_mean_of_at_least_two_seconds() -> None:
    counters = Counters()
    power = Power(counters.meter, lambda: counters.now_s)
    assert power.watts() is None
    counters.passes(1.0, 50.0)
    assert power.watts() is None
    counters.passes(1.0, 150.0)
    assert power.watts() == pytest.approx(100.0)
    counters.passes(0.5, 900.0)
    assert power.watts() == pytest.approx(100.0)


def test_counters_are_read_no_more_often_than_that() -> None:
    counters = Counters()
    power = Power(counters.meter, lambda: counters.now_s)
    power.watts()
    before = counters.read
    for _ in range(30):
        counters.passes(0.1, 50.0)
        power.watts()
    assert counters.read == before + 1


def test_a_machine_without_counters_has_no_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy, "rapl_of", lambda: rapl_of(tmp_path))
    clock = iter([0.0, 5.0])
    power = Power(clock=lambda: next(clock))
    assert (power.watts(), power.watts()) == (None, None)


def test_a_rank_reports_the_energy_of_each_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first two seconds on."""
    counters = Counters()
    monkeypatch.setattr(reporting, "Power", lambda: Power(counters.meter, lambda: counters.now_s))
    pacer, script = paced(0, 1, {})
    for (_,) in pacer.loader(TensorDataset(ones(16)), 4):
        counters.passes(3.0, 200.0)
        pacer.step(tensor(1.0))
    pacer.close()
    reports = script.all_said(IterationReport)
    assert len(reports) == 4
    for report in reports[1:]:
        assert report.joules == pytest.approx(200.0 * report.iteration_s, rel=1e-6)
