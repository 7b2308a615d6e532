"""Describes the environment of this machine's processes without importing torch, which the agent never does."""

import platform
from functools import cache
from pathlib import Path

from controlplane.protocol.environment import release_of, system
from controlplane.protocol.messages import Environment

CPUS = Path("/proc/cpuinfo")
GPUS = Path("/proc/driver/nvidia/gpus")


@cache
def environment(device: str, *, network: str = "", cpus: Path = CPUS, gpus: Path = GPUS) -> Environment:
    """The environment of this machine, from its ``Setup``: its workers' ``device``, and the
    protection of its network.
    """
    return Environment(
        python=platform.python_version(),
        torch=release_of("torch"),
        platform=system(),
        cpu=_field(cpus, "model name") or platform.processor(),
        device=_device(device, gpus),
        network=network,
    )


def _device(device: str, gpus: Path) -> str:
    """The requested devices, and the GPUs of the machine."""
    if device == "cpu":
        return device
    models = [found for file in sorted(gpus.glob("*/information")) if (found := _field(file, "Model"))]
    return f"{device} ({', '.join(models)})" if models else device


def _field(file: Path, name: str) -> str:
    """The first value of that name in lines like ``name : value``."""
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    return next((value.strip() for key, _, value in (line.partition(":") for line in lines) if key.strip() == name), "")
