"""How busy the device is that a worker computes on: its memory and use, in place of the machine's."""

import importlib
from typing import Any, Protocol

from workers.resources import Load


class Gauge(Protocol):
    """What tells the load of a worker's device."""

    def load(self, machine: Load) -> Load:
        """The load to be reported, given that of the machine."""


class Processor:
    """A worker that computes on the machine itself."""

    def load(self, machine: Load) -> Load:
        """That of the machine."""
        return machine


class Cuda:
    """A GPU: memory as its driver tells torch, use by NVML where the package ``pynvml`` is installed."""

    def __init__(self, device: str, memory: Any = None, utilisation: Any = None) -> None:
        self._device = device
        self._memory = memory or _memory_of
        self._utilisation = utilisation or _nvml(device)

    def load(self, machine: Load) -> Load:
        """The GPU's memory in use by anybody; its use, or where nobody can tell, the machine's."""
        free, total = self._memory(self._device)
        use = self._utilisation()
        return Load(cpu=machine.cpu if use is None else use, memory=min(1.0, max(0.0, 1.0 - free / total)))


def gauge_of(device: str) -> Gauge:
    """The one for a device of torch."""
    return Cuda(device) if device.startswith("cuda") else Processor()


def _memory_of(device: str) -> tuple[int, int]:
    import torch

    free, total = torch.cuda.mem_get_info(device)
    return free, total


def _nvml(device: str) -> Any:
    try:
        nvml: Any = importlib.import_module("pynvml")
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByIndex(int(device.partition(":")[2] or 0))
    except Exception:  # not installed, or no driver: nothing here may stop a worker
        return lambda: None
    return lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100.0
