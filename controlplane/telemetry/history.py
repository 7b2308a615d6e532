"""Reads of reports: from chunks and rollups, overlaid with rows that are not folded into them yet. Never reads all
rows.

The mark is read before rows and chunks: the chunks may by then contain rows of the tail, and overlaying them again has
no effect.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from django.db.models import BinaryField, Max, QuerySet
from django.db.models.functions import Substr
from numpy.typing import NDArray

from controlplane.protocol.measurements import OF_WORKERS
from controlplane.telemetry.blobs import ITEM_BYTES
from controlplane.telemetry.columns import (
    ABSENT,
    COLUMNS,
    INTEGERS,
    ROLLED,
    STATISTICS,
    STRETCH,
    WIDTHS,
    Block,
    Column,
    Rows,
    decoded,
    decoded_rollup,
    empty_block,
    lay_over,
    rolled,
    sources,
    summed,
)
from controlplane.telemetry.metrics import ITERATION
from controlplane.telemetry.models import Chunk, Rollup
from controlplane.telemetry.stored_reports import Place, folded_until, stored_blocks
from controlplane.telemetry.tails import tail

FOREVER: Final = 2**62
PARTS: Final = frozenset(each.name for each in OF_WORKERS if each.is_optional and each.name in ITERATION)
"""Parts of iterations that older releases did not measure separately."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A selection of reports: workers (empty: all), and a half-open range of iterations."""

    ranks: Sequence[int] = ()
    first: int = 0
    last: int = FOREVER

    def includes(self, rank: Column, iteration: Column) -> Column:
        """A mask of the selected reports."""
        chosen: Column = (iteration >= self.first) & (iteration < self.last)
        return chosen & np.isin(rank, self.ranks) if self.ranks else chosen

    def chosen(self, rows: "QuerySet[Any]") -> "QuerySet[Any]":
        """Rows with a selected rank."""
        return rows.filter(rank__in=self.ranks) if self.ranks else rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Statistics of one worker over windows of equal length, without empty windows."""

    first: NDArray[np.int64]
    """First iteration of each window."""
    names: Sequence[str]
    table: NDArray[np.float64]
    """Shape (names, STATISTICS, windows)."""

    def of(self, name: str, statistic: str) -> Column:
        """One statistic of one column."""
        values: Column = self.table[self.names.index(name), STATISTICS.index(statistic)]
        return values

    def mean(self, *names: str) -> Column:
        """Mean over the reports of the sum of these columns (``summed``); NaN if a window has no values."""
        return summed([quotient(self.of(name, "sum"), self.of(name, "count")) for name in names])


def quotient(whole: Column, base: Column) -> Column:
    """The quotient; NaN if ``base`` is 0."""
    values: Column = np.divide(whole, base, out=np.full(len(base), np.nan), where=base > 0)
    return values


def read_columns(job_id: int, columns: Collection[str], span: Span | None = None) -> dict[int, Block]:
    """As ``read_measured``, for sums of parts of iterations: 0 s for a part that was not measured."""
    found = read_measured(job_id, columns, span)
    for block in found.values():
        for name in PARTS.intersection(block):
            block[name] = np.nan_to_num(block[name])
    return found


def read_measured(job_id: int, columns: Collection[str], span: Span | None = None) -> dict[int, Block]:
    """By rank: these columns and ``iteration`` of every reported iteration, in order.

    NaN for values that were not measured. After details were pruned: means over every 10 iterations, at the first of
    them.
    """
    span, read = span or Span(), tuple(dict.fromkeys(["generation", *columns]))
    by_rank: dict[int, list[Block]] = defaultdict(list)
    for (rank, number), block in sorted(_blocks(job_id, read, span).items()):
        iteration = np.arange(number * STRETCH, (number + 1) * STRETCH)
        kept = (block["generation"] != ABSENT) & (iteration >= span.first) & (iteration < span.last)
        by_rank[rank].append({name: values[kept] for name, values in {"iteration": iteration, **block}.items()})
    joined = {rank: _joined(parts) for rank, parts in by_rank.items()}
    found = {rank: block for rank, block in joined.items() if len(block["iteration"])}
    return found or ({} if has_detail(job_id) else _means(job_id, read, span))


def has_detail(job_id: int) -> bool:
    """Whether single iterations can be read, which is until they are pruned."""
    return Chunk.objects.filter(job_id=job_id).exists() or not Rollup.objects.filter(job_id=job_id).exists()


def newest_iteration(job_id: int) -> int | None:
    """The highest iteration that any worker has reported; None before the first."""
    stretches = Chunk.objects.filter(job_id=job_id, column="generation").aggregate(newest=Max("number"))["newest"]
    span = Span(first=(stretches or 0) * STRETCH)
    found = read_columns(job_id, (), span)
    return max((int(block["iteration"][-1]) for block in found.values()), default=None)


def read_windows(
    job_id: int, width: int, ranks: Sequence[int] = (), names: Sequence[str] = ROLLED
) -> dict[int, Windows]:
    """By rank: the rollup of that width; width 1 gives each report its own window."""
    if width == 1:
        return {
            rank: Windows(first=block["iteration"], names=names, table=rolled(block, 1, names))
            for rank, block in read_measured(job_id, sources(names), Span(ranks=ranks)).items()
        }
    by_rank: dict[int, list[Windows]] = defaultdict(list)
    for (rank, number), table in sorted(_rollups(job_id, width, ranks).items()):
        filled = table[ROLLED.index("at_ms"), 0] > 0
        first = number * STRETCH + np.arange(table.shape[2]) * width
        by_rank[rank].append(Windows(first=first[filled], names=ROLLED, table=table[:, :, filled]))
    return {rank: _one_after_another(parts) for rank, parts in by_rank.items()}


def width_for(iterations: int, workers: int, most: int) -> int:
    """The smallest width with which ``workers`` workers and ``iterations`` iterations have at most ``most`` windows."""
    fitting = (width for width in (1, *WIDTHS) if -(-iterations // width) * workers <= most)
    return next(fitting, WIDTHS[-1])


def _blocks(job_id: int, columns: Collection[str], span: Span) -> dict[Place, Block]:
    mark = folded_until(job_id)
    blocks: dict[Place, Block] = {}
    rows = _tail(job_id, mark, columns, span)
    for place, name, data in _chunks(job_id, columns, span):
        block = blocks.get(place)
        if block is None:
            block = blocks[place] = empty_block(columns)
        block[name] = data
    for place, part in rows.by_block():
        if place not in blocks:
            blocks[place] = empty_block(columns)
        lay_over(blocks[place], part)
    return blocks


def _rollups(job_id: int, width: int, ranks: Sequence[int]) -> dict[Place, NDArray[np.float64]]:
    stored = Span(ranks=ranks).chosen(Rollup.objects.filter(job_id=job_id))
    found = stored.values_list("rank", "number", f"by_{width}")
    tables = {(rank, number): decoded_rollup(bytes(data)) for rank, number, data in found}
    return tables | {place: rolled(block, width) for place, block in _open_blocks(job_id, ranks).items()}


def _means(job_id: int, columns: Collection[str], span: Span) -> dict[int, Block]:
    """Rollups of iterations whose detail was deleted."""
    width = WIDTHS[0]
    found = {}
    for rank, windows in read_windows(job_id, width, span.ranks).items():
        kept = (windows.first + width > span.first) & (windows.first < span.last)
        means = {name: windows.mean(name)[kept] for name in columns if name != "generation"}
        means |= {name: np.rint(means[name]).astype(np.int64) for name in INTEGERS if name in means}
        if kept.any():
            found[rank] = {"iteration": windows.first[kept], "generation": np.zeros(kept.sum(), np.int64), **means}
    return found


def _open_blocks(job_id: int, ranks: Sequence[int]) -> dict[Place, Block]:
    """Complete blocks that have unfolded rows."""
    rows = _tail(job_id, folded_until(job_id), COLUMNS, Span(ranks=ranks))
    parts = dict(rows.by_block())
    blocks = stored_blocks(job_id, parts)
    for place, part in parts.items():
        lay_over(blocks[place], part)
    return blocks


def _tail(job_id: int, mark: int, columns: Collection[str], span: Span) -> Rows:
    """Reports that are not folded yet."""
    rows = tail(job_id, mark, columns)
    return rows.where(span.includes(rows.rank, rows.iteration))


def _chunks(job_id: int, columns: Collection[str], span: Span) -> Iterable[tuple[Place, str, Column]]:
    """Stored columns; if the requested range is contiguous, only that range is read."""
    first, last = span.first // STRETCH, (span.last - 1) // STRETCH
    stored = span.chosen(Chunk.objects.filter(job_id=job_id, column__in=columns, number__gte=first))
    if span.last < FOREVER:
        stored = stored.filter(number__lte=last)
    offset, length, data = 0, STRETCH, Substr("data", 1, output_field=BinaryField())
    if first == last:
        offset, length = span.first % STRETCH, max(0, span.last - span.first)
        data = Substr("data", 1 + offset * ITEM_BYTES, length * ITEM_BYTES, output_field=BinaryField())
    for name, rank, number, found in stored.values_list("column", "rank", "number", data):
        values = decoded(name, b"")
        values[offset : offset + length] = decoded(name, bytes(found), length=length)
        yield (rank, number), name, values


def _one_after_another(parts: Sequence[Windows]) -> Windows:
    return Windows(
        first=np.concatenate([part.first for part in parts]),
        names=parts[0].names,
        table=np.concatenate([part.table for part in parts], axis=2),
    )


def _joined(parts: Sequence[Block]) -> Block:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
