"""Load and driver measurements of the device that a worker computes on."""

import importlib
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

import structlog

from controlplane.protocol.meters import GpuMeter, ProcessorMeter
from workers.energy import processor_meter
from workers.resources import Load

EVERY_S: Final = 1.0
"""Minimum time between two queries of NVML: some drivers take milliseconds to respond."""

Numbers = dict[str, float]
log = structlog.get_logger("accelerator")


class Gauge(Protocol):
    """Measures the load of a worker's device."""

    def load(self, machine: Load) -> Load:
        """The load to report, given that of the machine."""

    def numbers(self) -> Numbers:
        """Measurements of the device by name, if it has them."""

    def joules(self) -> float | None:
        """The worker's energy use since the last call; None: not measured."""


class Processor:
    """A worker that computes on the CPU."""

    def __init__(self, meter: ProcessorMeter | None = None) -> None:
        self._meter = meter or processor_meter()

    def load(self, machine: Load) -> Load:
        """The machine's load."""
        return machine

    def numbers(self) -> Numbers:
        """Empty: the agent reports the machine's measurements."""
        return {}

    def joules(self) -> float | None:
        """Its part of the energy that the CPUs used."""
        return self._meter.joules()


class Nvml:
    """One GPU through NVML; values that the GPU or its driver does not support are omitted.

    Args:
        library: the module ``pynvml``, initialized.
        handle: of the GPU.
    """

    def __init__(self, library: Any, handle: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._library, self._handle, self._clock = library, handle, clock
        self._at_s: float | None = None
        self._kept: Numbers = {}
        self.meter = GpuMeter(library, handle, clock)

    def numbers(self) -> Numbers:
        """Utilization (0 to 1), temperature (degrees Celsius) and power (watts), at most ``EVERY_S`` old."""
        now = self._clock()
        if self._at_s is None or now - self._at_s >= EVERY_S:
            self._at_s, self._kept = now, self._read()
        return self._kept

    def _read(self) -> Numbers:
        nvml, gpu = self._library, self._handle
        asked: dict[str, Callable[[], float]] = {
            "gpu_utilization": lambda: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100.0,
            "gpu_temperature": lambda: float(nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)),
            "gpu_power": lambda: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000.0,
        }
        found = {}
        for name, ask in asked.items():
            try:
                found[name] = ask()
            except nvml.NVMLError:  # not supported by this GPU, or the driver is being replaced
                continue
        return found


class Cuda:
    """A GPU: memory from torch, everything else from NVML if it is available."""

    def __init__(self, device: str, nvml: Nvml | None, memory: Callable[[str], tuple[int, int]] | None = None) -> None:
        self._device, self._nvml = device, nvml
        self._memory = memory or _memory_of

    def load(self, machine: Load) -> Load:
        """The GPU's memory in use by all processes; its utilization, or the machine's if that is unknown."""
        free, total = self._memory(self._device)
        use = self._nvml_values().get("gpu_utilization", machine.cpu)
        return Load(cpu=use, memory=min(1.0, max(0.0, 1.0 - free / total)))

    def numbers(self) -> Numbers:
        """Memory in use, and NVML's values."""
        free, total = self._memory(self._device)
        return {"gpu_memory": float(total - free), **self._nvml_values()}

    def joules(self) -> float | None:
        """The energy that all processes used on the GPU."""
        return self._nvml.meter.joules() if self._nvml is not None else None

    def _nvml_values(self) -> Numbers:
        return self._nvml.numbers() if self._nvml is not None else {}


def gauge_of(device: str) -> Gauge:
    """The gauge for a torch device."""
    return Cuda(device, nvml_of(device)) if device.startswith("cuda") else Processor()


def nvml_of(device: str, library: Any = None, uuid: Callable[[str], str] | None = None) -> Nvml | None:
    """NVML's handle of a torch device; None if NVML is not available (package, driver, or the GPU is not listed).

    GPUs are found by UUID: torch counts only those in ``CUDA_VISIBLE_DEVICES``, NVML counts all.
    """
    try:
        nvml = library or importlib.import_module("pynvml")
        nvml.nvmlInit()
        return Nvml(nvml, nvml.nvmlDeviceGetHandleByUUID((uuid or _uuid_of)(device)))
    except Exception as error:  # any error of a driver: training continues without its measurements
        log.info(f"no temperature, power or utilization of {device}: NVML: {error}")
        return None


def _memory_of(device: str) -> tuple[int, int]:
    import torch

    free, total = torch.cuda.mem_get_info(device)
    return free, total


def _uuid_of(device: str) -> str:
    import torch

    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"
