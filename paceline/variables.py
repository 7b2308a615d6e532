"""The environment variables of an attached job: ``paceline run`` sets them, ranks read them."""

import os
from collections.abc import Mapping
from typing import Final, NamedTuple

from paceline.errors import CannotAttach

URL: Final = "PACELINE_URL"
JOB: Final = "PACELINE_JOB"
TOKEN: Final = "PACELINE_TOKEN"
LAUNCHER: Final = "PACELINE_LAUNCHER"
RANK_VARIABLES: Final = (URL, JOB, TOKEN, LAUNCHER)

TENSORBOARD: Final = "PACELINE_TENSORBOARD"
MLFLOW: Final = "PACELINE_MLFLOW"
WANDB: Final = "PACELINE_WANDB"
TRACKERS: Final = (TENSORBOARD, MLFLOW, WANDB)
"""Variables that name the trackers to which iterations are forwarded."""


class Target(NamedTuple):
    """The job of a rank, and the control plane's address; values that are not given are empty."""

    url: str
    job: str
    token: str

    @property
    def missing(self) -> list[str]:
        """The variables without a value."""
        return [name for name, value in zip((URL, JOB, TOKEN), self, strict=True) if not value]

    @property
    def number(self) -> int:
        """The job's number.

        Raises:
            CannotAttach: if it is not a number.
        """
        if not (self.job.isascii() and self.job.isdigit()):
            raise CannotAttach(f"{JOB} is {self.job!r}; give the number of the job")
        return int(self.job)


def target(
    url: str | None = None,
    job: int | None = None,
    token: str | None = None,
    *,
    variables: Mapping[str, str] = os.environ,
) -> Target:
    """Return the given values, completed from the environment."""
    return Target(
        url=url or variables.get(URL, ""),
        job=variables.get(JOB, "") if job is None else str(job),
        token=token or variables.get(TOKEN, ""),
    )
