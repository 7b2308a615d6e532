"""How slow each rank was in the latest iterations, by two measures: numbers only, no verdict.

*others*: its time divided by the median of the others in the same iteration (leave-one-out, so that in a small job the
straggler does not raise the reference). *own*: its time divided by its usual time, relative to the median of the same
ratio of the others, so that more work for all makes no worker slow. The usual time is learned from iterations that have
left the window, and only slowly while a flag is open, so that slowness does not become usual.

All figures are logarithms, NaN if there is no evidence. Only the new row is computed per iteration; the others are
moved.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from struct import Struct

import msgspec

from controlplane.policies.stragglers import measuring
from controlplane.policies.stragglers.measuring import Past, Row, Worth
from controlplane.protocol.base import Value

_FIGURE = Struct("f")


class Panel(Value, frozen=True, kw_only=True):
    """One row per iteration of the window, oldest first, and one column per rank; float32 as bytes."""

    ranks: list[int] = []
    costs: list[bytes] = []
    others: list[bytes] = []
    """Excess over the others' median."""
    own: list[bytes] = []
    """Excess over its own past."""
    usual: bytes = b""
    counted: bytes = b""
    """The number of iterations that ``usual`` is based on."""
    missed: dict[int, int] = {}
    """For workers missing from the last iteration: the number of iterations in a row without a measurement."""
    open: dict[int, str] = {}
    """Open flags: transient or lasting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The figures of one rank, one per iteration in the panel, oldest first."""

    others: list[float]
    own: list[float]


def extend(panel: Panel, row: Row, worth: Worth, window: int) -> tuple[Panel, list[int]]:
    """Add an iteration; the oldest leaves the window and updates the usual values.

    Returns the panel, with unchanged open flags, and the ranks without a measurement in the whole window, which were
    removed.
    """
    if not panel.ranks and not any(row.seconds):
        return panel, []  # nothing was measured, in this iteration or before
    panel, row = _aligned(panel, row, window)
    kept = 1 - window
    past = Past(
        leaving=panel.costs[0] if len(panel.costs) == window else b"",
        usual=panel.usual,
        counted=panel.counted,
        flagged=[place(panel, rank) for rank in panel.open],
    )
    new = measuring.measure(past, row, worth)
    missed = {panel.ranks[column]: panel.missed.get(panel.ranks[column], 0) + 1 for column in new.unmeasured}
    gone = [rank for rank, count in missed.items() if count >= window]
    extended = Panel(
        ranks=panel.ranks,
        costs=[*panel.costs[kept:], new.costs],
        others=[*panel.others[kept:], new.others],
        own=[*panel.own[kept:], new.own],
        usual=new.usual,
        counted=new.counted,
        missed=missed,
        open=panel.open,
    )
    if not gone:
        return extended, []
    left = set(gone)
    kept_missed = {rank: count for rank, count in missed.items() if rank not in left}
    remaining = _for_ranks(extended, [rank for rank in panel.ranks if rank not in left])
    return msgspec.structs.replace(remaining, missed=kept_missed), gone


def raised(panel: Panel, bar: float) -> Iterable[int]:
    """The columns with at least ``bar`` in either measure in the latest iteration."""
    return measuring.raised(panel.others[-1], panel.own[-1], bar)


def place(panel: Panel, rank: int) -> int:
    """The column of a rank that is in the panel."""
    return bisect_left(panel.ranks, rank)


def column_of(panel: Panel, column: int) -> Column:
    """The figures of one column."""
    at, figure = _FIGURE.size * column, _FIGURE.unpack_from
    return Column(
        others=[figure(row, at)[0] for row in panel.others],
        own=[figure(row, at)[0] for row in panel.own],
    )


def _aligned(panel: Panel, row: Row, window: int) -> tuple[Panel, Row]:
    """Panel and row with a column for every worker in either; new workers are missing in the whole window."""
    if panel.ranks == row.ranks:
        return panel, row
    known, seen = set(panel.ranks), set(row.ranks)
    if not seen <= known:
        new = dict.fromkeys(sorted(seen - known), window - 1)
        panel = _for_ranks(panel, sorted(known | seen))
        panel = msgspec.structs.replace(panel, missed={**panel.missed, **new})
    return panel, row.for_ranks(panel.ranks)


def _for_ranks(panel: Panel, ranks: list[int]) -> Panel:
    """The same rows with these columns; new ones are empty."""
    if not ranks:
        return Panel()
    places = {rank: column for column, rank in enumerate(panel.ranks)}
    columns = [places.get(rank, -1) for rank in ranks]

    def pick(of: bytes, fill: float) -> bytes:
        # The last entry, to which column -1 refers.
        padded = array("f", of)
        padded.append(fill)
        return array("f", [padded[column] for column in columns]).tobytes()

    def pick_all(rows: Sequence[bytes]) -> list[bytes]:
        return [pick(row, float("nan")) for row in rows]

    return Panel(
        ranks=ranks,
        costs=pick_all(panel.costs),
        others=pick_all(panel.others),
        own=pick_all(panel.own),
        usual=pick(panel.usual, 0.0),
        counted=pick(panel.counted, 0.0),
        missed=panel.missed,
        open=panel.open,
    )
