"""Stored reports: rows, the mark up to which they are folded, and the blocks in chunks."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from django.db.models import F, QuerySet, TextField
from django.db.models.functions import Cast

from controlplane.protocol.measurements import OF_WORKERS
from controlplane.telemetry.columns import COLUMNS, INTEGERS, Block, Column, Rows, decoded, empty_block, rollup_names
from controlplane.telemetry.models import Chunk, Folded, Report, Rollup

_FIELDS = {field.name for field in Report._meta.get_fields()}
OWN_COLUMNS = tuple(each.name for each in OF_WORKERS if each.name in _FIELDS)
"""Measurements that reports keep in their own columns; ``others`` has the rest."""
OTHERS = tuple(each.name for each in OF_WORKERS if each.name not in _FIELDS)

LOOKED_AT = 64
"""How many of the newest reports and rollups are read, to find out which measurements a job has."""

Place = tuple[int, int]
"""Rank, and number of the stretch."""


def folded_until(job_id: int) -> int:
    """Id of the last report up to which everything is folded."""
    return Folded.objects.filter(job_id=job_id).values_list("report_id", flat=True).first() or 0


def rows_of(reports: "QuerySet[Report]", columns: Collection[str], *, most: int | None = None) -> tuple[Rows, int]:
    """The reports (the first ``most``) as they were written, and the highest id among them (0 where there are none)."""
    read = list(dict.fromkeys(["generation", *columns]))
    own = [name for name in read if name not in OTHERS]
    fields = [Cast("at", TextField()) if name == "at_ms" else F(name) for name in own]
    fields += [F("others")] if len(own) < len(read) else []
    found = reports.order_by("id").values_list("id", "rank", "iteration", *fields)[:most]
    table = list(zip(*found, strict=True))
    ids, rank, iteration, *values = table or [()] * (3 + len(fields))
    rows = Rows(
        rank=np.array(rank, np.int64),
        iteration=np.array(iteration, np.int64),
        columns={name: _column(name, found) for name, found in zip(own, values, strict=False)}
        | {name: _column(name, [row.get(name) for row in values[-1]]) for name in read if name in OTHERS},
    )
    return rows, max(ids, default=0)


def known_measurements(job_id: int) -> set[str]:
    """Which of the workers' measurements a job has values of; none before the first report."""
    names = [each.name for each in OF_WORKERS]
    known = {name for name in names if Chunk.objects.filter(job_id=job_id, column=name).exists()}
    tail = Report.objects.filter(job_id=job_id, id__gt=folded_until(job_id)).order_by("-id")
    for others, *own in tail.values_list("others", *OWN_COLUMNS)[:LOOKED_AT]:
        known.update(others, (name for name, value in zip(OWN_COLUMNS, own, strict=True) if value is not None))
    for data in Rollup.objects.filter(job_id=job_id).order_by("-id").values_list("by_1000", flat=True)[:LOOKED_AT]:
        known.update(rollup_names(bytes(data)))
    return known.intersection(names)


def stored_blocks(job_id: int, places: Collection[Place]) -> dict[Place, Block]:
    """Whole blocks of these places, as chunks have them; empty where there is none."""
    blocks = {place: empty_block(COLUMNS) for place in places}
    ranks, numbers = {rank for rank, _ in places}, {number for _, number in places}
    stored = Chunk.objects.filter(job_id=job_id, column__in=COLUMNS, rank__in=ranks, number__in=numbers)
    for name, rank, number, data in stored.values_list("column", "rank", "number", "data"):
        if (block := blocks.get((rank, number))) is not None:
            block[name] = decoded(name, bytes(data))
    return blocks


def _column(name: str, values: Sequence[Any]) -> Column:
    if name == "at_ms":
        # As text and all at once: converting each to a datetime would take most of the time.
        texts = [text.partition("+")[0] for text in values]
        return np.array(texts, "datetime64[us]").astype(np.int64) // 1000
    return np.array(values, np.int64 if name in INTEGERS else np.float64)  # None becomes NaN
