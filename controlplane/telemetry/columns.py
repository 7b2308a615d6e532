"""Reports as columns: blocks of 1,000 iterations of one worker, and their rollups. Pure.

For a repeated iteration the last values count: those of the highest generation and, within it, of the last row.
Overlaying rows on a block in that order is idempotent, so rows may be overlaid again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from controlplane.protocol.measurements import OF_WORKERS
from controlplane.telemetry import blobs
from controlplane.telemetry.blobs import ITEM_BYTES

STRETCH: Final = 1_000
"""Iterations per block."""

WIDTHS: Final = (10, 100, 1_000)
"""Iterations per window of each rollup."""

COUNTS: Final = tuple(each.name for each in OF_WORKERS if each.is_integer and not each.is_optional)
INTEGERS: Final = ("generation", "at_ms", *COUNTS)
MEASURES: Final = tuple(each.name for each in OF_WORKERS if each.name not in COUNTS)
"""Measured columns, as floats, with NaN for unknown values."""

COLUMNS: Final = (*INTEGERS, *MEASURES)

SCORED: Final = ("scored_samples", "scored_loss")
"""Samples with a known loss, and loss times samples: together they give the weighted mean loss over workers."""

ROLLED: Final = ("at_ms", *COUNTS, *MEASURES, *SCORED)
"""Columns of a rollup."""

STATISTICS: Final = ("count", "sum", "min", "max")
UNKNOWN: Final = (0.0, 0.0, np.nan, np.nan)
"""Statistics of a column without measurements."""

ROLLUP_FORMAT: Final = b"rollup\x00\x01"
"""A stored rollup starts with this and names its columns, so that it stays readable after columns are added."""

ABSENT: Final = -1
"""Generation of an iteration that was not reported."""

Column = NDArray[Any]
Block = dict[str, Column]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Reports in the order in which they were written: columns of equal length."""

    rank: Column
    iteration: Column
    columns: Block
    """Columns by name; at least ``generation``."""

    def where(self, chosen: Column) -> "Rows":
        """Selected rows."""
        columns = {name: values[chosen] for name, values in self.columns.items()}
        return Rows(rank=self.rank[chosen], iteration=self.iteration[chosen], columns=columns)

    def by_block(self) -> Iterable[tuple[tuple[int, int], "Rows"]]:
        """The rows of each (rank, number of the block)."""
        if not len(self.rank):
            return
        number = self.iteration // STRETCH
        order = np.lexsort((number, self.rank))
        rank, number = self.rank[order], number[order]
        borders = np.flatnonzero((np.diff(rank) != 0) | (np.diff(number) != 0)) + 1
        for part in np.split(order, borders):
            first = part[0]
            yield (int(self.rank[first]), int(self.iteration[first] // STRETCH)), self.where(part)


def empty_block(columns: Iterable[str]) -> Block:
    """A block without reports."""
    return {name: decoded(name, b"") for name in columns}


def lay_over(block: Block, rows: Rows) -> None:
    """Overlay rows of this block, except where it has a later value."""
    order = np.argsort(rows.columns["generation"], kind="stable")
    places, generations = (rows.iteration % STRETCH)[order], rows.columns["generation"][order]
    newer = generations >= block["generation"][places]
    for name, values in block.items():
        values[places[newer]] = rows.columns[name][order][newer]


def encoded(block: Mapping[str, Column]) -> dict[str, bytes]:
    """Each column as stored: little-endian, up to the last reported iteration; columns without known values are
    omitted.
    """
    reported = np.flatnonzero(block["generation"] != ABSENT)
    length = int(reported[-1]) + 1 if len(reported) else 0
    return {
        name: values[:length].astype(_stored(name)).tobytes() if is_known(name, values) else b""
        for name, values in block.items()
    }


def is_known(name: str, values: Column) -> bool:
    """Whether any value of the column is known."""
    return name in INTEGERS or not bool(np.isnan(values).all())


def rollups(block: Mapping[str, Column]) -> list[bytes]:
    """The stored rollups of WIDTHS. Columns without values, most in a usual job, are not computed."""
    known = {name for name, values in block.items() if is_known(name, values)}
    names = [name for name in ROLLED if name in known or (name in SCORED and "loss" in known)]
    return [encoded_rollup(rolled(block, width, names), names) for width in WIDTHS]


def summed(columns: Sequence[Column]) -> Column:
    """Sum of parts: an unknown part is contained in another, or zero; NaN if none is known."""
    if len(columns) == 1:
        return columns[0]
    parts = np.stack(columns).astype(np.float64)
    whole: Column = np.where(np.isnan(parts).all(axis=0), np.nan, np.nansum(parts, axis=0))
    return whole


def decoded(name: str, data: bytes, *, length: int = STRETCH) -> Column:
    """A column from its bytes, padded to ``length`` values."""
    values = np.full(length, ABSENT if name in INTEGERS else np.nan, dtype=_stored(name))
    found = np.frombuffer(data, dtype=_stored(name))
    values[: len(found)] = found
    return values


def rolled(block: Mapping[str, Column], width: int, names: Sequence[str] = ROLLED) -> NDArray[np.float64]:
    """Statistics of each window of ``width`` iterations, with shape (names, STATISTICS, windows); NaN for empty
    windows.
    """
    reported = block["generation"] != ABSENT
    whole = np.stack([np.where(reported, _measured(block, name), np.nan) for name in names])
    windows = whole.reshape(len(names), -1, width)
    exists = ~np.isnan(windows)
    counts, sums = exists.sum(axis=2), np.where(exists, windows, 0.0).sum(axis=2)
    lowest, highest = np.fmin.reduce(windows, axis=2), np.fmax.reduce(windows, axis=2)
    return np.stack([counts.astype(np.float64), sums, lowest, highest], axis=1)


def sources(names: Iterable[str]) -> set[str]:
    """The columns of a block from which ``rolled`` computes these."""
    return {"generation"}.union(*({"samples", "loss"} if name in SCORED else {name} for name in names))


def encoded_rollup(statistics: NDArray[np.float64], names: Sequence[str] = ROLLED) -> bytes:
    """The stored form: names of the known columns, then windows, and only up to the last non-empty one."""
    filled = np.flatnonzero(statistics[names.index("at_ms"), 0])
    length = int(filled[-1]) + 1 if len(filled) else 0
    kept = [place for place, name in enumerate(names) if name == "at_ms" or statistics[place, 0].any()]
    values = np.ascontiguousarray(statistics[kept, :, :length].transpose(2, 0, 1), dtype="<f8").tobytes()
    return rollup_header([names[place] for place in kept]) + values


def rollup_header(names: Sequence[str]) -> bytes:
    """The header of a stored rollup: format, size of the names, and the names, in whole items."""
    return blobs.header(ROLLUP_FORMAT, names)


def decoded_rollup(data: bytes) -> NDArray[np.float64]:
    """Statistics with shape (ROLLED, STATISTICS, windows) from bytes of any release; columns that did not exist then
    are unknown.

    Raises:
        ValueError: if the bytes are of a later format, or cut off.
    """
    names, values = _named(data)
    if len(values) % (len(names) * len(STATISTICS) * ITEM_BYTES):
        raise ValueError(
            f"stored rollup of {', '.join(names)}: {len(values)} bytes are not a multiple of a window: was it cut off?"
        )
    found = np.frombuffer(values, dtype="<f8").reshape(-1, len(names), len(STATISTICS)).transpose(1, 2, 0)
    if names == ROLLED:
        return found
    table = np.empty((len(ROLLED), len(STATISTICS), found.shape[2]))
    table[:] = np.array(UNKNOWN)[None, :, None]
    for place, name in enumerate(ROLLED):
        if name in names:
            table[place] = found[names.index(name)]
    return table


def rollup_names(data: bytes) -> tuple[str, ...]:
    """The columns of a stored rollup, which have known values."""
    return _named(data)[0] if data else ()


def _named(data: bytes) -> tuple[tuple[str, ...], bytes]:
    """The names of a stored rollup, and its values."""
    if not data:
        return ROLLED, data
    return blobs.named(ROLLUP_FORMAT, data)


def _measured(block: Mapping[str, Column], name: str) -> Column:
    """A column of a rollup for every iteration; NaN if unknown."""
    if name not in SCORED:
        return block[name].astype(np.float64)
    known = np.where(np.isfinite(block["loss"]), block["samples"], np.nan)
    return known if name == "scored_samples" else known * block["loss"]


def _stored(name: str) -> str:
    return "<i8" if name in INTEGERS else "<f8"
