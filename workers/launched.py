"""Names and tokens of agents that a launcher starts, one per rank."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

RANKS: Final = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("JOB_COMPLETION_INDEX", "JOB_COMPLETION_INDEX"),
)
"""Variables in which torchrun, Slurm's srun, Open MPI, other MPIs and a Kubernetes Indexed Job pass the rank, each with
a variable that is also set if the launcher really started this process.
"""


LOCAL_RANKS: Final = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
"""Variables in which launchers pass the local rank on a machine."""


@dataclass(frozen=True, slots=True)
class Launched:
    """The rank that a launcher gave this process; None: it was started by hand."""

    rank: str | None
    local_rank: int | None = None
    """The local rank among the launcher's processes on this machine; None: unknown."""

    @classmethod
    def by(cls, environment: Mapping[str, str]) -> "Launched":
        """The first of ``RANKS`` that is set."""
        found = (environment[rank] for rank, beside in RANKS if environment.get(rank) and environment.get(beside))
        if (rank := next(found, None)) is None:
            return cls(None)
        local = next((environment[name] for name in LOCAL_RANKS if environment.get(name, "").isdecimal()), None)
        return cls(rank, None if local is None else int(local))

    def named(self, name: str) -> str:
        """A unique name of this agent; a host or pod name that contains the rank is used unchanged.

        The pods of an Indexed Job are called ``JOB-INDEX-SUFFIX``, their hosts ``JOB-INDEX``.
        """
        has_rank = self.rank is None or re.search(rf"-{re.escape(self.rank)}(-[a-z0-9]{{5}})?$", name)
        return name if has_rank else f"{name}-{self.rank}"

    def filled(self, argument: str | None) -> str | None:
        """``argument`` with ``{rank}`` replaced, if each agent has its own token."""
        return argument if argument is None or self.rank is None else argument.replace("{rank}", self.rank)
