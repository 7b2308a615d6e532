"""Loads of devices, by a library that stands for NVML; on a machine with a GPU, that of the real one as well."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pynvml
import pytest
import torch

from controlplane.protocol.measurements import OF_WORKERS
from controlplane.protocol.training import Workload
from tests.support.gpus import needs_gpu
from workers.accelerator import EVERY_S, Cuda, Nvml, Processor, gauge_of, nvml_of
from workers.emulation import Pace
from workers.readings import Readings
from workers.resources import Load
from workers.workloads.catalogue import load_workload
from workers.workloads.local import Local, pick_device

MACHINE = Load(cpu=0.3, memory=0.4)
UUID = "GPU-11111111-2222-3333-4444-555555555555"
GB = 10**9


class Library:
    """Two GPUs as ``pynvml`` has them: it is asked by its real names, and counts how often."""

    NVMLError = pynvml.NVMLError
    NVML_TEMPERATURE_GPU = pynvml.NVML_TEMPERATURE_GPU

    def __init__(self, *, unsupported: str = "", fails: int | None = None) -> None:
        self.unsupported, self.fails, self.asked = unsupported, fails, 0

    def nvmlInit(self) -> None:  # noqa: N802
        if self.fails is not None:
            raise pynvml.NVMLError(self.fails)

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        if uuid != UUID:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return "second"

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:  # noqa: N802
        self.asked += 1
        return SimpleNamespace(gpu=self._answer("utilization", handle, 90), memory=12)

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:  # noqa: N802
        assert sensor == pynvml.NVML_TEMPERATURE_GPU
        return self._answer("temperature", handle, 61)

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:  # noqa: N802
        """In milliwatts."""
        return self._answer("power", handle, 312_500)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:  # noqa: N802
        """In millijoules."""
        return self._answer("energy", handle, 7_000_000)

    def _answer(self, what: str, handle: str, value: int) -> int:
        assert handle == "second"
        if what == self.unsupported:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return value


def gpu(library: Any) -> Cuda:
    """A GPU of 8 GB, 6 of them in use."""
    return Cuda("cuda:0", nvml_of("cuda:0", library, lambda device: UUID), memory=lambda device: (2 * GB, 8 * GB))


def test_the_fake_library_has_the_names_of_nvml() -> None:
    assert {name for name in vars(Library) if name.lower().startswith("nvml")} <= set(dir(pynvml))


def test_a_gpu_reports_its_own_memory_and_use() -> None:
    assert gpu(Library()).load(MACHINE) == Load(cpu=0.9, memory=0.75)


def test_a_gpu_reports_memory_utilization_temperature_and_power() -> None:
    assert gpu(Library()).numbers() == {
        "gpu_memory": 6.0 * GB,
        "gpu_utilization": 0.9,
        "gpu_temperature": 61.0,
        "gpu_power": 312.5,
    }
    assert gpu(Library()).numbers().keys() <= {each.name for each in OF_WORKERS}


@pytest.mark.parametrize("what", ["utilization", "temperature", "power"])
def test_what_a_gpu_does_not_support_is_left_out(what: str) -> None:
    found = gpu(Library(unsupported=what))
    assert found.numbers().keys() == gpu(Library()).numbers().keys() - {f"gpu_{what}"}
    assert found.load(MACHINE).cpu == (0.3 if what == "utilization" else 0.9)


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED])
def test_without_nvml_a_gpu_reports_its_memory_alone(code: int) -> None:
    found = gpu(Library(fails=code))
    assert found.numbers() == {"gpu_memory": 6.0 * GB}
    assert found.load(MACHINE) == Load(cpu=0.3, memory=0.75)


def test_a_gpu_that_nvml_does_not_know_has_no_numbers_of_its() -> None:
    assert nvml_of("cuda:0", Library(), lambda device: "GPU-of-another-kind") is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_the_real_nvml_of_a_machine_without_a_gpu_reports_nothing() -> None:
    assert nvml_of("cuda:0", uuid=lambda device: UUID) is None


def test_nvml_is_read_at_intervals() -> None:
    now_s, library = 100.0, Library()
    nvml = Nvml(library, "second", clock=lambda: now_s)
    first = nvml.numbers()
    now_s += 0.9 * EVERY_S
    assert (nvml.numbers(), library.asked) == (first, 1)
    now_s += 0.2 * EVERY_S
    assert (nvml.numbers(), library.asked) == (first, 2)


def test_a_processor_reports_the_machine_and_nothing_of_a_gpu() -> None:
    assert isinstance(gauge_of("cpu"), Processor)
    assert (gauge_of("cpu").load(MACHINE), gauge_of("cpu").numbers()) == (MACHINE, {})


def test_readings_are_fields_of_a_report() -> None:
    pace = Pace(None, rest=lambda seconds: None)
    found = Readings(gpu(Library()), pace).take()
    assert found == {"cpu": 0.9, "memory": 0.75, "joules": 0.0} | gpu(Library()).numbers()
    assert Readings(Processor(), pace).take().keys() == {"cpu", "memory"}


def test_a_device_that_is_not_there_is_named_with_the_cure() -> None:
    with pytest.raises(ValueError, match=r"device 'quantum' cannot be used: .*; try --device auto or --device cpu"):
        pick_device("quantum")


@needs_gpu
def test_a_gpu_computes_the_same_sums() -> None:
    spec = Workload(name="cnn")
    here, there = load_workload(spec).replica(), load_workload(spec, Local(device="cuda")).replica()
    for replica in (here, there):
        replica.parameters[:] = load_workload(spec).init(7)
        replica.update(np.arange(40))
    np.testing.assert_allclose(there.gradient, here.gradient, rtol=1e-3, atol=1e-3)


@needs_gpu
def test_the_real_gpu_reports_its_numbers() -> None:
    assert {"gpu_memory", "gpu_utilization"} <= gauge_of("cuda:0").numbers().keys()
