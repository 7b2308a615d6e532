"""Assigns devices to the slots of a machine without importing torch, which the agent never does.

A worker process sees only its own device, through ``CUDA_VISIBLE_DEVICES``, and calls it ``cuda``: processes share a
device only if that was requested. GPUs have the names that torch and CUDA use: ``cuda:1`` is the second that the agent
may use; ``GPU-...`` and ``MIG-...`` are UUIDs as ``nvidia-smi -L`` prints them.
"""

import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from workers.machines import UsageError

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
GPUS: Final = Path("/proc/driver/nvidia/gpus")
AUTO: Final = "auto"
CPU: Final = "cpu"
CUDA: Final = "cuda"

_NUMBERED = re.compile(r"cuda:(\d{1,4})")
_UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z/-]{1,100}")
_EXPECTED = "expected auto, cpu, cuda, or a list of cuda:0, GPU-UUID or MIG-UUID with commas between"


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs that processes here may use, as ``CUDA_VISIBLE_DEVICES`` names them; None: their number is not known."""

    names: tuple[str, ...] | None

    @classmethod
    def found(cls, environment: Mapping[str, str], gpus: Path = GPUS) -> "Gpus":
        """From the environment, else from the driver's list."""
        if VISIBLE in environment:
            names = (name.strip() for name in environment[VISIBLE].split(","))
            return cls(tuple(name for name in names if name and name != "-1"))
        count = len(list(gpus.glob("*/information")))
        return cls(tuple(map(str, range(count)))) if count else cls(None)

    def visible(self, device: str) -> str:
        """The environment variables that limit a process to that device."""
        if (numbered := _NUMBERED.fullmatch(device)) is None:
            return device
        number = int(numbered[1])
        return str(number) if self.names is None else self.names[number]


def devices_of(requested: str, gpus: Gpus) -> list[str]:
    """Parse ``--device``: one or more devices.

    Raises:
        UsageError: if one is invalid or does not exist.
    """
    if requested in (AUTO, CUDA):
        return [f"cuda:{number}" for number in range(len(gpus.names or ()))] or [requested]
    devices = [part.strip() for part in requested.split(",")]
    for device in devices:
        numbered = _NUMBERED.fullmatch(device)
        if not (device == CPU or numbered or _UUID.fullmatch(device)):
            raise UsageError(f"--device {requested!r}: found {device!r}, {_EXPECTED}")
        if numbered and gpus.names is not None and int(numbered[1]) >= len(gpus.names):
            there = f"cuda:0 to cuda:{len(gpus.names) - 1}" if gpus.names else "no GPU"
            raise UsageError(f"--device {requested!r}: found {device}, expected one that is here: {there}")
    return devices


def devices_by_slot(devices: list[str], slots: int, local_rank: int | None = None) -> list[str]:
    """Return one device per slot, in turn.

    Agents that a launcher starts on one machine, by their ``local_rank`` there, continue where the previous one ends.
    """
    first = (local_rank or 0) * slots
    return [devices[(first + slot) % len(devices)] for slot in range(slots)]


def claim(device: str, environment: MutableMapping[str, str], gpus: Path = GPUS) -> str:
    """Make only ``device`` visible to this process, before torch initializes; return torch's name for it."""
    if device in (AUTO, CPU, CUDA):
        return device
    environment[VISIBLE] = Gpus.found(environment, gpus).visible(device)
    return CUDA
