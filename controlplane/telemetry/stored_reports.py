"""Stored reports: rows, the mark up to which they are folded, and the blocks in chunks."""

from collections.abc import Collection, Iterator

from django.db.models import QuerySet

from controlplane.protocol.measurements import OF_WORKERS
from controlplane.telemetry.batches import ReportColumns, decoded_batch, joined
from controlplane.telemetry.columns import COLUMNS, Block, Rows, decoded, empty_block, rollup_names
from controlplane.telemetry.models import Chunk, Folded, ReportBatch, Rollup

LOOKED_AT = 64
"""How many of the newest batches and rollups are read to determine which measurements a job has."""

READ_AT_ONCE = 64
"""Number of batches that are fetched at a time."""

Place = tuple[int, int]
"""Rank, and number of the stretch."""


def folded_until(job_id: int) -> int:
    """Id of the last batch up to which all reports are folded."""
    return Folded.objects.filter(job_id=job_id).values_list("batch_id", flat=True).first() or 0


def batches_after(job_id: int, mark: int) -> "QuerySet[ReportBatch]":
    """The job's batches after that one, in the order of writing."""
    return ReportBatch.objects.filter(job_id=job_id, id__gt=mark).order_by("id")


def rows_of(batches: "QuerySet[ReportBatch]", columns: Collection[str], *, most: int | None = None) -> tuple[Rows, int]:
    """The reports in the order of writing, and the highest id among their batches (0 if there are none).

    With ``most``: only the first batches that together have at least this many reports.
    """
    read = list(dict.fromkeys(["generation", *columns]))
    found: list[ReportColumns] = []
    last = count = 0
    for number, data in read_batches(batches):
        found.append(decoded_batch(data, read))
        last, count = number, count + len(found[-1])
        if most is not None and count >= most:
            break
    return joined(found).rows(read), last


def read_batches(batches: "QuerySet[ReportBatch]") -> Iterator[tuple[int, bytes]]:
    """Id and data of each of these batches, which are in the order of writing; a few are fetched at a time."""
    last = 0
    while True:
        page = batches.filter(id__gt=last).values_list("id", "data")[:READ_AT_ONCE]
        found = [(number, bytes(data)) for number, data in page]
        yield from found
        if len(found) < READ_AT_ONCE:
            return
        last = found[-1][0]


def reports_of(job_id: int) -> Iterator[ReportColumns]:
    """All stored reports in the order of writing, one batch at a time."""
    for data in batches_after(job_id, 0).values_list("data", flat=True).iterator(READ_AT_ONCE):
        yield decoded_batch(bytes(data))


def known_measurements(job_id: int) -> set[str]:
    """The workers' measurements for which a job has values; empty before the first report."""
    names = [each.name for each in OF_WORKERS]
    known = {name for name in names if Chunk.objects.filter(job_id=job_id, column=name).exists()}
    newest = batches_after(job_id, folded_until(job_id)).order_by("-id")
    for data in newest.values_list("data", flat=True)[:LOOKED_AT]:
        known.update(decoded_batch(bytes(data)).columns)
    for data in Rollup.objects.filter(job_id=job_id).order_by("-id").values_list("by_1000", flat=True)[:LOOKED_AT]:
        known.update(rollup_names(bytes(data)))
    return known.intersection(names)


def stored_blocks(job_id: int, places: Collection[Place]) -> dict[Place, Block]:
    """The complete blocks at these places from chunks; empty blocks if there are none."""
    blocks = {place: empty_block(COLUMNS) for place in places}
    ranks, numbers = {rank for rank, _ in places}, {number for _, number in places}
    stored = Chunk.objects.filter(job_id=job_id, column__in=COLUMNS, rank__in=ranks, number__in=numbers)
    for name, rank, number, data in stored.values_list("column", "rank", "number", "data"):
        if (block := blocks.get((rank, number))) is not None:
            block[name] = decoded(name, bytes(data))
    return blocks
