"""Reports that are not folded into chunks yet, kept in the memory of each process that reads them.

A page reads them for each of its figures, several times per tick, and only those of the last half second are new. They
are thousands, in hundreds of batches: reading and decoding all of them again took most of the time of a page.

Batches never change, and their ids increase in the order of their transactions, since one process at a time writes a
job's history. The last batch that is known is read again along with the new ones: if it is another one, the database
was replaced, and everything is read again.
"""

from collections import OrderedDict
from collections.abc import Collection
from threading import Lock
from typing import Final

import numpy as np

from controlplane.telemetry.batches import ReportColumns, decoded_batch, joined
from controlplane.telemetry.columns import Rows
from controlplane.telemetry.stored_reports import batches_after, read_batches, rows_of

MOST_REPORTS: Final = 300_000
"""That are kept, of all jobs together: about 60 MB. A job with more is read without being kept."""

MOST_JOBS: Final = 64

_BATCH: Final = "batch"
"""The column with the id of each report's batch."""


class TooLong(RuntimeError):
    """The job has more than ``MOST_REPORTS`` unfolded reports: none are kept."""


class Tail:
    """The reports of one job after a mark."""

    def __init__(self) -> None:
        self.lock = Lock()
        self._mark = 0
        self._last = (0, b"")
        """The newest batch, and its data; 0: none."""
        self._parts: list[ReportColumns] = []
        """In the order of writing. Most are less than half as long as the one before, so that there are few."""

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def update(self, job_id: int, mark: int) -> None:
        """Read what is new, and drop what is folded, up to ``mark``.

        Raises:
            TooLong: if there are too many reports.
        """
        try:
            if not self._mark <= mark < self._last[0] or not self._read_on(job_id, self._last):
                self._clear()
                for number, data in read_batches(batches_after(job_id, mark)):
                    self._append(number, data)
        except TooLong:
            self._clear()
            raise
        if mark != self._mark:
            kept = (_after(mark, part) for part in self._parts)
            self._parts, self._mark = [part for part in kept if len(part)], mark

    def rows(self, columns: Collection[str]) -> Rows:
        """These columns of all reports, in the order of writing."""
        read = list(dict.fromkeys(["generation", *columns]))
        if not self._parts:
            return joined([]).rows(read)
        return Rows(
            rank=np.concatenate([part.columns["rank"] for part in self._parts]),
            iteration=np.concatenate([part.columns["iteration"] for part in self._parts]),
            columns={name: np.concatenate([part.column(name) for part in self._parts]) for name in read},
        )

    def _clear(self) -> None:
        self._mark, self._last, self._parts = 0, (0, b""), []

    def _read_on(self, job_id: int, last: tuple[int, bytes]) -> bool:
        """Append the batches after ``last``; False if it is not in the database."""
        found = read_batches(batches_after(job_id, last[0] - 1))
        if next(found, None) != last:
            return False
        for number, data in found:
            self._append(number, data)
        return True

    def _append(self, number: int, data: bytes) -> None:
        batch = decoded_batch(data)
        if len(self) + len(batch) > MOST_REPORTS:
            raise TooLong
        columns = batch.columns | {_BATCH: np.full(len(batch), number, np.int64)}
        self._parts.append(ReportColumns(instances=batch.instances, columns=columns))
        self._last = number, data
        while len(self._parts) > 1 and len(self._parts[-2]) <= 2 * len(self._parts[-1]):
            self._parts[-2:] = [joined(self._parts[-2:])]


_tails: OrderedDict[int, Tail] = OrderedDict()
"""By job; the one that was read last is at the end."""
_lock: Final = Lock()
"""Held while this table changes."""


def tail(job_id: int, mark: int, columns: Collection[str]) -> Rows:
    """These columns of the job's reports in batches after ``mark``, in the order of writing."""
    with _lock:
        found = _tails.setdefault(job_id, Tail())
        _tails.move_to_end(job_id)
        while len(_tails) > MOST_JOBS or (len(_tails) > 1 and sum(map(len, _tails.values())) > MOST_REPORTS):
            _tails.popitem(last=False)
    try:
        with found.lock:
            found.update(job_id, mark)
            return found.rows(columns)
    except TooLong:
        return rows_of(batches_after(job_id, mark), columns)[0]


def forget_tails() -> None:
    """Keep none."""
    with _lock:
        _tails.clear()


def _after(mark: int, part: ReportColumns) -> ReportColumns:
    """The reports in batches after ``mark``; these are sorted."""
    first = int(np.searchsorted(part.columns[_BATCH], mark, side="right"))
    if not first:
        return part
    left = {name: values[first:].copy() for name, values in part.columns.items()}  # a view would keep all of them
    return ReportColumns(instances=part.instances, columns=left)
