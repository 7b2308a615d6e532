"""Folds a job's reports into chunks and rollups, a piece at a time: short transactions, repeatable at any point.

``Folded`` is updated last, and only if no other process updated it. Until then readers overlay the same rows again on
chunks that already contain them, which has no effect.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from django.db import connection, models, transaction

from controlplane.jobs.rows import update_rows
from controlplane.telemetry.columns import COLUMNS, Rows, encoded, is_known, lay_over, rollups
from controlplane.telemetry.models import Chunk, Folded, Rollup
from controlplane.telemetry.stored_reports import Place, batches_after, folded_until, rows_of, stored_blocks

ROWS: Final = 32_768
"""Reports that are folded in one step, to bound memory however far behind a job is."""

BLOCKS: Final = 16
"""Blocks per transaction, to keep it under 50 ms."""


class StaleFold(RuntimeError):
    """Another process is folding this job: nothing was written."""


def unfolded(job_id: int) -> int:
    """How many reports are not folded yet."""
    found = batches_after(job_id, folded_until(job_id)).aggregate(reports=models.Sum("reports"))
    return found["reports"] or 0


def fold(job_id: int) -> Iterator[int]:
    """Fold the present reports; yields the number of folded reports after each short transaction.

    Reports that are written meanwhile are left for the next fold: under load there are always more, and each pass
    rewrites the chunks of all workers.

    Raises:
        StaleFold: if another process moved the mark meanwhile.
    """
    mark, done = folded_until(job_id), 0
    end = batches_after(job_id, mark).aggregate(last=models.Max("id"))["last"] or mark
    while mark < end:
        rows, last = rows_of(batches_after(job_id, mark).filter(id__lte=end), COLUMNS, most=ROWS)
        parts = list(rows.by_block())
        for start in range(0, len(parts), BLOCKS):
            with transaction.atomic():
                _hold(job_id, mark)
                lay_over_stored(job_id, dict(parts[start : start + BLOCKS]))
            yield done
        with transaction.atomic():
            _hold(job_id, mark)
            Folded.objects.filter(job_id=job_id).update(batch_id=last)
        mark, done = last, done + len(rows.rank)
        yield done


def _hold(job_id: int, mark: int) -> None:
    """Lock the mark until the end of the transaction."""
    Folded.objects.get_or_create(job_id=job_id)
    found = Folded.objects.select_for_update().get(job_id=job_id).batch_id
    if found != mark:
        raise StaleFold(f"job {job_id}: reports are folded up to {found}, not {mark}: another process is folding them")


def lay_over_stored(job_id: int, parts: Mapping[Place, Rows]) -> None:
    """Fold reports into their chunks and rollups; repeating it has no effect."""
    blocks = stored_blocks(job_id, parts)
    before = {(place, name) for place, block in blocks.items() for name in block if is_known(name, block[name])}
    for place, rows in parts.items():
        lay_over(blocks[place], rows)
    chunks = [
        (job_id, name, *place, data)
        for place, block in blocks.items()
        for name, data in encoded(block).items()
        if data or (place, name) in before
    ]
    _upsert(Chunk, ("job_id", "column", "rank", "number"), ("data",), chunks)
    windows = [(job_id, *place, *rollups(block)) for place, block in blocks.items()]
    _upsert(Rollup, ("job_id", "rank", "number"), ("by_10", "by_100", "by_1000"), windows)


def _upsert(
    model: type[models.Model], key: Sequence[str], values: Sequence[str], rows: Sequence[Sequence[Any]]
) -> None:
    quote = connection.ops.quote_name
    columns = ", ".join(quote(name) for name in (*key, *values))
    marks = ", ".join(["%s"] * (len(key) + len(values)))
    changes = ", ".join(f"{quote(name)} = excluded.{quote(name)}" for name in values)
    update_rows(
        f"INSERT INTO {quote(model._meta.db_table)} ({columns}) VALUES ({marks})"
        f" ON CONFLICT ({', '.join(quote(name) for name in key)}) DO UPDATE SET {changes}",
        rows,
    )
