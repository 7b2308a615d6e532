"""Schedules the folding of reports into chunks: rarely enough to be cheap, often enough that few raw rows are read.

Folding runs one short transaction at a time, between rounds of copying, so that reports are not delayed.
"""

from collections.abc import Iterator
from typing import Final

from controlplane.runtime.faults import reach
from controlplane.telemetry.folding import fold, unfolded

ROWS: Final = 4_096
PER_SENDER: Final = 256
"""Number of unfolded reports per process from which on a job is folded, since each time a whole chunk is rewritten."""


class Folds:
    """The folding of all jobs that ingest copies."""

    def __init__(self) -> None:
        self._rows: dict[int, int] = {}
        self._under_way: dict[int, Iterator[int]] = {}

    def add_job(self, job: int, senders: int) -> None:
        """Add the job, and count its unfolded reports. ``senders`` is how many processes ever sent a report."""
        self._rows[job] = 0
        self.add(job, unfolded(job), senders)

    def forget(self, job: int) -> None:
        """Remove the job."""
        self._rows.pop(job, None)
        self._under_way.pop(job, None)

    def add(self, job: int, rows: int, senders: int) -> None:
        """Count ``reports`` new reports."""
        self._rows[job] = self._rows.get(job, 0) + rows
        if self._rows[job] >= max(ROWS, PER_SENDER * senders):
            self._begin(job)

    def settled(self, job: int) -> bool:
        """Whether all reports are folded; if not, request that."""
        if self._rows.get(job, 0):
            self._begin(job)
            return False
        return True

    def next_job(self) -> int | None:
        """The job to fold next; None if there is nothing to do."""
        return next(iter(self._under_way), None)

    def step(self) -> int | None:
        """Fold one piece; returns its job, or None if there was nothing to do.

        After a failure the job is retried at the next ``add`` or ``settled``.
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
