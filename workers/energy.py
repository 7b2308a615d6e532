"""Energy counters for a worker and an agent. Since Linux 5.10 only root can read RAPL's. Without counters nothing is
reported, and the control plane uses the job's power model.
"""

import time
from functools import partial
from pathlib import Path
from typing import Final

import psutil

from controlplane.protocol.meters import ProcessorMeter, Rapl, Zone

RAPL: Final = Path("/sys/class/powercap")


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


def processor_meter(rapl: Rapl | None = None) -> ProcessorMeter:
    """The meter of this process."""
    return ProcessorMeter(rapl or rapl_of(), time.process_time, _all_cpu_s)


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def _all_cpu_s() -> float:
    times = psutil.cpu_times()  # type: ignore[no-untyped-call]
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0))
