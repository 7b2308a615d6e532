"""The power that a rank draws, from the same counters as a native worker's: RAPL of the CPUs, or NVML of its GPU.

Read at most every two seconds, and only if a counter is available: RAPL's files, which only root can read since Linux
5.10, or NVML through the package ``nvidia-ml-py``, if it is installed.
"""

import importlib
import logging
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from controlplane.protocol.meters import GpuMeter, ProcessorMeter, Rapl, Zone

EVERY_S: Final = 2.0
RAPL: Final = Path("/sys/class/powercap")
STAT: Final = Path("/proc/stat")

Meter = GpuMeter | ProcessorMeter
log = logging.getLogger("paceline")


class Power:
    """Mean power over the last two seconds or more.

    Args:
        meter: makes the meter of a device, on the first call; returns None without one.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        meter: Callable[[object], Meter | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._meter_of, self._clock = meter or meter_of, clock
        self._meter: Meter | None = None
        self._read_s: float | None = None
        self._watts: float | None = None

    def watts(self, device: object = None) -> float | None:
        """Power in watts. ``device``: the torch device that the script computes on; None: torch's current one, or the
        CPUs.

        None: not measured, or not for two seconds yet.
        """
        now_s = self._clock()
        if self._read_s is None:
            self._read_s, self._meter = now_s, self._meter_of(device)
        took_s = now_s - self._read_s
        if self._meter is not None and took_s >= EVERY_S:
            joules = self._meter.joules()
            self._read_s, self._watts = now_s, joules / took_s if joules is not None else None
        return self._watts


def meter_of(device: object) -> Meter | None:
    """The meter of a GPU if the script computes on one, otherwise this process's part of the CPUs' energy."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        return _gpu(torch, device)
    rapl = rapl_of()
    return ProcessorMeter(rapl, time.process_time, _all_cpu_s) if rapl.is_there else None


def rapl_of(folder: Path = RAPL) -> Rapl:
    """The counters of all CPU packages; ``intel-rapl`` also has AMD's."""
    found = sorted(folder.glob("intel-rapl:*")) if folder.is_dir() else []
    return Rapl(
        [
            Zone(partial(_number, zone / "energy_uj"), _number(zone / "max_energy_range_uj") or 0)
            for zone in found
            if zone.name.count(":") == 1
        ]
    )


def _gpu(torch: Any, device: object) -> GpuMeter | None:
    """Found by UUID: torch counts only the GPUs in ``CUDA_VISIBLE_DEVICES``, NVML counts all."""
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
        uuid = torch.cuda.get_device_properties(torch.cuda.current_device() if device is None else device).uuid
        return GpuMeter(nvml, nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"), time.monotonic)
    except Exception as error:  # any error of a driver: training continues without it
        log.info("paceline: no energy of the GPU: NVML: %s", error)
        return None


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def _all_cpu_s() -> float:
    """CPU time of all processes: every state of the CPUs except idle and iowait."""
    try:
        ticks = [int(word) for word in STAT.read_text().split(maxsplit=9)[1:9]]
    except (OSError, ValueError):
        return 0.0
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
