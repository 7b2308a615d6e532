"""How slow each of many was in the latest iterations, by two measures: numbers only, no verdict.

By the *others'* measure: times the median of the others in the same iteration (leave-one-out, so that in a small job
the straggler does not lift what it is measured by). By its *own*: times what it usually took, over the median of the
same figure of the others, so that work which grows for all makes nobody slow. What it usually took is learnt from
iterations that have left the window, and hardly while a flag is open, so that a slow worker does not become its own
excuse.

All figures are logarithms, NaN where there is no evidence. Columns of a thousand workers are one array operation.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controlplane.protocol.base import Value

Array = NDArray[np.float32]

COMPARED = 3
"""Of two that differ nobody can say which one is out of the ordinary."""

KNOWN = 5
"""Iterations after which somebody's own past is evidence."""

PACE, PACE_WHILE_OPEN = 0.05, 0.005
"""Weight of one more iteration in what is usual, in the long run."""

JUMP = 0.2
"""One iteration moves what is usual by no more than if it had been so much off: a spike is no new habit."""

NOT_WORTH = 0.1
"""What an excess counts as, at most, in an iteration in which the time lost is not worth speaking of."""


class Panel(Value, frozen=True, kw_only=True):
    """One row per iteration of the window, oldest first, and one column per rank; float32 as bytes."""

    ranks: list[int] = []
    costs: bytes = b""
    others: bytes = b""
    """Excess over the others' median."""
    own: bytes = b""
    """Excess over its own past."""
    usual: bytes = b""
    counted: bytes = b""
    """How many iterations ``usual`` stands on."""
    open: dict[int, str] = {}
    """Open flags: transient or lasting."""


@dataclass(slots=True, kw_only=True)
class Rows:
    """A panel as arrays."""

    ranks: list[int]
    costs: Array
    others: Array
    own: Array
    usual: Array
    counted: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One iteration: of each rank, how long it took in seconds, for how much work, and how long its iteration was."""

    seconds: Mapping[int, float]
    units: Mapping[int, float]
    iteration_s: Mapping[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """The time lost from which on an iteration counts as slow."""

    part: float
    least_s: float


def unpack(panel: Panel, window: int) -> Rows:
    """The arrays of a panel."""
    shape = (window, len(panel.ranks))
    costs, others, own = (
        np.frombuffer(data, np.float32).reshape(shape) for data in (panel.costs, panel.others, panel.own)
    )
    usual, counted = (np.frombuffer(data, np.float32) for data in (panel.usual, panel.counted))
    return Rows(ranks=panel.ranks, costs=costs, others=others, own=own, usual=usual, counted=counted)


def pack(rows: Rows, flags: Mapping[int, str]) -> Panel:
    """Arrays and open flags as a panel."""
    return Panel(
        ranks=rows.ranks,
        costs=rows.costs.tobytes(),
        others=rows.others.tobytes(),
        own=rows.own.tobytes(),
        usual=rows.usual.tobytes(),
        counted=rows.counted.tobytes(),
        open=dict(flags),
    )


def extend(rows: Rows, row: Row, flags: Mapping[int, str], worth: Worth) -> Rows:
    """One more iteration; the oldest leaves the window and becomes part of what is usual."""
    rows = _for_ranks(rows, sorted(set(rows.ranks) | row.seconds.keys()))
    usual, counted = _learn(rows, flags)
    seconds, units, iteration_s = (
        np.array([of.get(rank, np.nan) for rank in rows.ranks], np.float64)
        for of in (row.seconds, row.units, row.iteration_s)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        costs = np.log(seconds / units)
    costs[~np.isfinite(costs)] = np.nan
    above_usual = np.where(counted >= KNOWN, costs - usual, np.nan)
    excesses = (
        costs - medians_of_others(costs, least=COMPARED - 1),
        above_usual - medians_of_others(above_usual, least=1),
    )
    others, own = (_worthy(excess, seconds, iteration_s, worth) for excess in excesses)
    return Rows(
        ranks=rows.ranks,
        costs=_push(rows.costs, costs),
        others=_push(rows.others, others),
        own=_push(rows.own, own),
        usual=usual,
        counted=counted,
    )


def drop_unseen(rows: Rows) -> tuple[Rows, list[int]]:
    """Without those who were not seen in the whole window; and who they are."""
    seen: NDArray[np.bool_] = np.any(~np.isnan(rows.costs), axis=0)
    gone = [rank for rank, was in zip(rows.ranks, seen, strict=True) if not was]
    kept = [rank for rank, was in zip(rows.ranks, seen, strict=True) if was]
    return (_for_ranks(rows, kept), gone) if gone else (rows, [])


def medians_of_others(values: NDArray[np.float64], *, least: int) -> NDArray[np.float64]:
    """For each entry the median of all other ones that are not NaN; NaN where there are fewer than ``least``.

    Of an even number the upper one: where two others disagree, nobody is slow by the faster one alone.
    """
    result = np.full(values.shape, np.nan)
    valid = np.flatnonzero(~np.isnan(values))
    left = len(valid) - 1
    if left < max(1, least):
        return result
    order = np.argsort(values[valid], kind="stable")
    ordered = values[valid][order]
    places = np.empty(len(valid), np.int64)
    places[order] = np.arange(len(valid))
    middle = left // 2

    def at(wanted: int) -> NDArray[np.float64]:
        # Without the entry itself the list is one shorter: whatever stood behind it moves up by one.
        picked: NDArray[np.float64] = ordered[wanted + (wanted >= places)]
        return picked

    result[valid] = at(middle)
    return result


def _worthy(
    excess: NDArray[np.float64], seconds: NDArray[np.float64], iteration_s: NDArray[np.float64], worth: Worth
) -> Array:
    lost_s = seconds * -np.expm1(-excess)
    needed_s = np.maximum(worth.least_s, worth.part * iteration_s)
    counted: Array = np.where(lost_s >= needed_s, excess, np.minimum(excess, NOT_WORTH)).astype(np.float32)
    return counted


def _learn(rows: Rows, flags: Mapping[int, str]) -> tuple[Array, Array]:
    leaving = rows.costs[0]
    here = ~np.isnan(leaving)
    is_open = np.array([rank in flags for rank in rows.ranks], np.bool_)
    pace = np.where(is_open, PACE_WHILE_OPEN, np.maximum(PACE, 1.0 / (rows.counted + 1.0)))
    moved = rows.usual + pace * np.clip(leaving - rows.usual, -JUMP, JUMP)
    usual = np.where(here, np.where(rows.counted > 0, moved, leaving), rows.usual).astype(np.float32)
    counted = np.where(here, rows.counted + 1.0, rows.counted).astype(np.float32)
    return usual, counted


def _push(rows: Array, row: NDArray[np.float64] | Array) -> Array:
    pushed: Array = np.vstack([rows[1:], row[None, :]]).astype(np.float32)
    return pushed


def _for_ranks(rows: Rows, ranks: list[int]) -> Rows:
    """The same rows with these columns; new ones know nothing."""
    if ranks == rows.ranks:
        return rows
    place = {rank: column for column, rank in enumerate(rows.ranks)}
    columns = np.array([place.get(rank, len(rows.ranks)) for rank in ranks], np.int64)

    def pick(of: Array, fill: float) -> Array:
        padded = np.concatenate([of, np.full((*of.shape[:-1], 1), fill, np.float32)], axis=-1)
        return padded[..., columns]

    return Rows(
        ranks=ranks,
        costs=pick(rows.costs, np.nan),
        others=pick(rows.others, np.nan),
        own=pick(rows.own, np.nan),
        usual=pick(rows.usual, 0.0),
        counted=pick(rows.counted, 0.0),
    )
