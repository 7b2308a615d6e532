"""Reads one metric of every worker over all iterations, from columns or, for long jobs, from rollups."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from controlplane.jobs.models import Job
from controlplane.jobs.stored_specs import stored_spec
from controlplane.telemetry.history import Windows, quotient
from controlplane.telemetry.metrics import BUSY, ITERATION
from frontend.figures.rows import Heat, View
from frontend.queries.classes import machine_classes
from frontend.queries.history import History
from frontend.queries.lanes import machines

MAX_CELLS = 60_000
MAX_RANKS = 512

Peaks = Callable[[Windows], NDArray[np.float64]]


def heat(job: Job, view: View) -> Heat:
    """The matrix; rows are grouped by machine class and machine.

    For a very large roster, only the first ``MAX_RANKS``.
    """
    ranks = range(min(stored_spec(job).workers, MAX_RANKS))
    width = History(job).width(MAX_CELLS, len(ranks))
    found = History(job).windows(("at_ms", "samples", *ITERATION), width, ranks)
    where, peaks = machines(job), _PEAKS[view.metric or "work"]
    kinds = _kinds(job, sorted(found))
    order = sorted(found, key=lambda rank: (list(kinds.values()).index(kinds[rank]), where.get(rank, ""), rank))
    columns = np.unique(np.concatenate([found[rank].first for rank in order])) if order else np.empty(0, np.int64)
    values = np.full((len(order), len(columns)), np.nan)
    for row, rank in enumerate(order):
        values[row, np.searchsorted(columns, found[rank].first)] = peaks(found[rank])
    return Heat(
        ranks=tuple(order),
        labels=tuple(f"w{rank} {where.get(rank, '')}".strip() for rank in order),
        first=columns.astype(np.int64),
        width=width,
        values=values,
        classes=tuple(kinds[rank] for rank in order) if 1 < len(set(kinds.values())) < len(order) else (),
    )


def _kinds(job: Job, ranks: Sequence[int]) -> dict[int, str]:
    """The machine class of each rank."""
    known = machine_classes(job)
    return {rank: known.get(rank, "unknown") for rank in ranks}


def _peak(names: tuple[str, ...], windows: Windows) -> NDArray[np.float64]:
    """The mean of the sum of some columns, plus the largest excess of any column over its own mean.

    For a single iteration this is the sum. For several, it keeps spikes of any column, which a mean would hide.
    """
    above = [windows.of(name, "max") - windows.mean(name) for name in names]
    peak: NDArray[np.float64] = windows.mean(*names) + np.fmax.reduce(above, axis=0)
    return peak


def _pace(windows: Windows) -> NDArray[np.float64]:
    """Busy seconds per sample."""
    return quotient(_peak(BUSY, windows), windows.mean("samples"))


_PEAKS: Mapping[str, Peaks] = {
    "work": partial(_peak, BUSY),
    "pace": _pace,
    "waiting": partial(_peak, ("waiting_s",)),
    "communication": partial(_peak, ("push_s", "pull_s")),
    "iteration": partial(_peak, ITERATION),
    "share": partial(_peak, ("samples",)),
}
