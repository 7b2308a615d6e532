"""Schedules the folding of reports into chunks: rarely enough to be cheap, often enough that few raw rows are read.

Folding runs one short transaction at a time, between rounds of copying, so that reports are not delayed.
"""

from collections.abc import Iterator
from typing import Final

from controlplane.runtime.faults import reach
from controlplane.telemetry.folding import fold, unfolded

ROWS: Final = 4_096
PER_SPEAKER: Final = 256
"""A job's reports are folded once there are so many, and so many per process: a chunk is written whole each time."""


class Folds:
    """Of all jobs that ingest copies."""

    def __init__(self) -> None:
        self._rows: dict[int, int] = {}
        self._under_way: dict[int, Iterator[int]] = {}

    def meet(self, job: int, speakers: int) -> None:
        """Begin to watch the job: count what is not folded. ``speakers`` of its processes ever spoke."""
        self._rows[job] = 0
        self.add(job, unfolded(job), speakers)

    def forget(self, job: int) -> None:
        """Watch it no longer."""
        self._rows.pop(job, None)
        self._under_way.pop(job, None)

    def add(self, job: int, rows: int, speakers: int) -> None:
        """So many reports were written."""
        self._rows[job] = self._rows.get(job, 0) + rows
        if self._rows[job] >= max(ROWS, PER_SPEAKER * speakers):
            self._begin(job)

    def settled(self, job: int) -> bool:
        """Whether all is folded; it will be soon."""
        if self._rows.get(job, 0):
            self._begin(job)
            return False
        return True

    def next_job(self) -> int | None:
        """The job of the next piece; None if there is nothing to do."""
        return next(iter(self._under_way), None)

    def step(self) -> int | None:
        """Do the next piece; the job that it was about, if anything was to do.

        A job whose piece fails is restarted by the next ``add`` or ``settled``.
        """
        for job, work in self._under_way.items():
            self._under_way.pop(job)
            if next(work, None) is None:
                self._rows[job] = unfolded(job)
            else:
                self._under_way[job] = work
                reach("ingest.folded")
            return job
        return None

    def _begin(self, job: int) -> None:
        if job not in self._under_way:
            self._under_way[job] = fold(job)
