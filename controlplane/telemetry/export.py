"""All measurements of a job, one line for each worker and iteration, in bounded memory."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from controlplane.telemetry.columns import COUNTS, MEASURES, STRETCH
from controlplane.telemetry.history import Span, newest_iteration, read_measured

HEADING: Final = ("iteration", "worker", "generation", "at_ms", *COUNTS, *MEASURES)
"""Times are in seconds; ``at_ms`` is the arrival of the report in milliseconds since 1970."""


def measurements(job_id: int, ranks: Sequence[int] = ()) -> Iterator[tuple[Any, ...]]:
    """A line per report with the values of ``HEADING``, by iteration and worker; None for a value that was not
    reported.

    A repeated iteration counts once, with its last values. After details were pruned: means over every 10 iterations,
    at the first of them. Only some iterations are in memory at a time.
    """
    newest = newest_iteration(job_id)
    for first in range(0, -1 if newest is None else newest + 1, STRETCH):
        yield from _stretch(job_id, Span(ranks=ranks, first=first, last=first + STRETCH))


def _stretch(job_id: int, span: Span) -> list[tuple[Any, ...]]:
    found = read_measured(job_id, HEADING[2:], span)
    if not found:
        return []
    rank = np.repeat(list(found), [len(block["iteration"]) for block in found.values()])
    columns = {name: np.concatenate([block[name] for block in found.values()]) for name in ("iteration", *HEADING[2:])}
    order = np.lexsort((rank, columns["iteration"]))
    lists = [_plain((columns | {"worker": rank})[name][order]) for name in HEADING]
    return list(zip(*lists, strict=True))


def _plain(values: Any) -> list[Any]:
    """Python's own numbers, and None for NaN."""
    if values.dtype.kind != "f":
        return list(values.tolist())
    return [value if value == value else None for value in values.tolist()]
