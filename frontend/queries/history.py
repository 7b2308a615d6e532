"""Reads a job's history: columns of single iterations, and windows of several, for every page and figure."""

from collections.abc import Collection, Sequence
from typing import Final

import numpy as np

from controlplane.jobs.models import Job
from controlplane.jobs.stored_specs import stored_spec
from controlplane.telemetry.columns import WIDTHS, Block, Column
from controlplane.telemetry.history import (
    FOREVER,
    Span,
    Windows,
    has_detail,
    newest_iteration,
    read_columns,
    read_windows,
    width_for,
)

MAX_SPAN: Final = 5_000
"""Maximum number of iterations read at once around decisions; a page of decisions rarely spans more."""


class History:
    """The reports of one job's workers."""

    def __init__(self, job: Job) -> None:
        self._job = job

    @property
    def newest(self) -> int | None:
        """The highest iteration that any worker has reported; None before the first."""
        return newest_iteration(self._job.pk)

    def columns(
        self, names: Collection[str], *, ranks: Sequence[int] = (), first: int = 0, last: int = FOREVER
    ) -> dict[int, Block]:
        """These columns and ``iteration`` by rank, for the iterations ``[first, last)``."""
        return read_columns(self._job.pk, names, Span(ranks=ranks, first=max(0, first), last=last))

    def latest(self, names: Collection[str], iterations: int) -> dict[int, Block]:
        """The columns of the last ``iterations`` iterations of the job, by rank."""
        return self.columns(names, first=self._job.iteration - iterations)

    def around(self, names: Collection[str], iterations: Collection[int], *, margin: int = 0) -> dict[int, Block]:
        """The columns from the first to the last of these iterations, with ``margin`` more on either side, by rank."""
        first, last = span_of(iterations)
        return self.columns(names, first=first - margin, last=last + 1 + margin)

    def width(self, most: int, workers: int | None = None) -> int:
        """The number of iterations per window with which all workers have at most ``most`` windows."""
        count = stored_spec(self._job).workers if workers is None else workers
        width = width_for(self._job.iteration, count, most)
        return width if width > 1 or has_detail(self._job.pk) else WIDTHS[0]

    def windows(self, names: Sequence[str], width: int, ranks: Sequence[int] = ()) -> dict[int, Windows]:
        """Statistics of these columns over windows of ``width`` iterations, by rank."""
        return read_windows(self._job.pk, width, ranks, names)


def span_of(iterations: Collection[int]) -> tuple[int, int]:
    """The first and the last of these iterations, limited to the last ``MAX_SPAN``."""
    last = max(iterations)
    return max(min(iterations), last - MAX_SPAN), last


def together(blocks: dict[int, Block], *names: str) -> list[Column]:
    """These columns over all workers, concatenated."""
    return [np.concatenate([block[name] for block in blocks.values()]) for name in names]
