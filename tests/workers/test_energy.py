"""Counters of energy, by files and a library that stand for RAPL and NVML."""

from pathlib import Path
from typing import Any

import pynvml
import pytest

from controlplane.protocol.meters import GpuMeter, ProcessorMeter
from workers.energy import processor_meter, rapl_of
from workers.rates import Rates


@pytest.fixture
def powercap(tmp_path: Path) -> Path:
    """Two packages, one with a part of itself; the first starts again after 1,000 J."""
    for zone in ("intel-rapl:0", "intel-rapl:0:0", "intel-rapl:1"):
        (tmp_path / zone).mkdir()
        (tmp_path / zone / "max_energy_range_uj").write_text("1000000000\n")
        (tmp_path / zone / "energy_uj").write_text("900000000\n")
    (tmp_path / "intel-rapl").mkdir()
    return tmp_path


def count(folder: Path, zone: str, joules: float) -> None:
    (folder / zone / "energy_uj").write_text(f"{int(joules * 1e6)}\n")


def test_packages_are_summed_and_their_parts_are_not_counted_twice(powercap: Path) -> None:
    rapl = rapl_of(powercap)
    assert rapl.joules() == 0.0
    for zone in ("intel-rapl:0", "intel-rapl:0:0", "intel-rapl:1"):
        count(powercap, zone, 905)
    assert rapl.joules() == pytest.approx(10.0)


def test_a_counter_that_starts_again_continues(powercap: Path) -> None:
    rapl = rapl_of(powercap)
    count(powercap, "intel-rapl:0", 20)
    assert rapl.joules() == pytest.approx(120.0)


def test_a_machine_without_readable_counters_has_no_number(tmp_path: Path, powercap: Path) -> None:
    assert rapl_of(tmp_path / "none").joules() is None
    for file in powercap.glob("intel-rapl:*/energy_uj"):
        file.unlink()
    assert rapl_of(powercap).joules() is None
    assert processor_meter(rapl_of(powercap)).joules() is None


def test_a_process_is_charged_by_its_part_of_the_cpu_time(powercap: Path) -> None:
    times = {"own": 0.0, "all": 100.0}
    meter = ProcessorMeter(rapl_of(powercap), lambda: times["own"], lambda: times["all"])
    count(powercap, "intel-rapl:0", 940)
    times |= {"own": 1.0, "all": 104.0}
    assert meter.joules() == pytest.approx(10.0)
    count(powercap, "intel-rapl:0", 960)
    assert meter.joules() == 0.0


def test_an_agent_reports_the_power_of_its_processors() -> None:
    joules, now = [100.0], [0.0]
    rates = Rates(lambda: {"cpu_power": joules[0]}, lambda: now[0])
    joules[0], now[0] = 350.0, 2.0
    assert rates.numbers() == {"cpu_power": 125.0}


class Library:
    """One GPU."""

    NVMLError = pynvml.NVMLError

    def __init__(self, *, counts: bool = True) -> None:
        self.counts, self.millijoules, self.milliwatts = counts, 5_000_000, 200_000

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any) -> int:  # noqa: N802
        if not self.counts:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return self.millijoules

    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int:  # noqa: N802
        return self.milliwatts


def test_a_gpu_has_the_difference_of_its_counter() -> None:
    gpu = Library()
    meter = GpuMeter(gpu, "gpu", lambda: 0.0)
    gpu.millijoules += 42_000
    assert meter.joules() == pytest.approx(42.0)
    gpu.millijoules = 10
    assert meter.joules() is None
    gpu.millijoules = 1_010
    assert meter.joules() == pytest.approx(1.0)


def test_a_gpu_without_a_counter_has_its_power_over_the_time() -> None:
    gpu, now = Library(counts=False), [0.0]
    meter = GpuMeter(gpu, "gpu", lambda: now[0])
    now[0], gpu.milliwatts = 2.0, 300_000
    assert meter.joules() == pytest.approx(500.0)
