"""Determines this process's rank, world size and launcher: from arguments, the launcher's environment or torch."""

import os
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from paceline.errors import CannotAttach
from paceline.variables import LAUNCHER

VARIABLES: Final = (
    ("environment", "RANK", "WORLD_SIZE"),
    ("slurm", "SLURM_PROCID", "SLURM_NTASKS"),
    ("openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("mpi", "PMI_RANK", "PMI_SIZE"),
    ("kubernetes", "JOB_COMPLETION_INDEX", "PACELINE_WORLD"),
)
"""Launchers, and the variables that they set; the first one present is used."""

SIGNS: Final = (
    ("TORCHELASTIC_RUN_ID", "torchrun"),
    ("RAY_JOB_ID", "ray"),
    ("ACCELERATE_MIXED_PRECISION", "accelerate"),
)
"""Variables that distinguish launchers which set RANK. Accelerate runs on torchrun, so it is checked first."""


RAY_NODE_DIGITS: Final = 12


def machine() -> str:
    """The machine of this process, for display: the host, and the Ray node if it belongs to one."""
    host, ray, node = socket.gethostname(), sys.modules.get("ray"), ""
    with suppress(Exception):  # an incomplete Ray installation
        node = ray.get_runtime_context().get_node_id() if ray is not None and ray.is_initialized() else ""
    return f"{host[:200]} (Ray node {node[:RAY_NODE_DIGITS]})" if node else host[:255]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One rank of the job."""

    rank: int
    world: int
    launcher: str


def identity(
    rank: int | None = None, world: int | None = None, environment: Mapping[str, str] = os.environ
) -> Identity:
    """Return the rank of this process.

    Raises:
        CannotAttach: if only some of the values are known, or they are invalid.
    """
    found = _torch() or _from(environment) or (0, 1, "none")
    rank = found[0] if rank is None else rank
    world = found[1] if world is None else world
    if world is None:
        raise CannotAttach(
            "JOB_COMPLETION_INDEX gives this rank, but the number of ranks is unknown: set PACELINE_WORLD, or call"
            " attach(world=...)"
        )
    if not 0 <= rank < world:
        raise CannotAttach(f"rank {rank} of {world} ranks: ranks are numbered from 0 to {world - 1}")
    return Identity(rank=rank, world=world, launcher=environment.get(LAUNCHER) or found[2])


def _torch() -> tuple[int, int, str] | None:
    """Rank and world size from torch.distributed, if the script has initialized it; torch is not imported for this."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not (distributed.is_available() and distributed.is_initialized()):
        return None
    return distributed.get_rank(), distributed.get_world_size(), _launcher(os.environ, "torch.distributed")


def _from(environment: Mapping[str, str]) -> tuple[int, int | None, str] | None:
    for name, rank, world in VARIABLES:
        if rank not in environment:
            continue
        given = environment.get(world)
        if given is None and name != "kubernetes":
            continue
        return _number(environment, rank), (given and _number(environment, world)) or None, _launcher(environment, name)
    return None


def _launcher(environment: Mapping[str, str], otherwise: str) -> str:
    return next((name for sign, name in reversed(SIGNS) if sign in environment), otherwise)


def _number(environment: Mapping[str, str], name: str) -> int:
    try:
        return int(environment[name])
    except ValueError:
        raise CannotAttach(f"{name} is {environment[name]!r}, which is not a number: unset or correct it") from None
