"""Stored reports for tests: written and read as one value per report, and changed after they were stored."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import numpy as np

from controlplane.protocol.measurements import OF_WORKERS
from controlplane.telemetry.batches import PLACES, WHOLE, ReportColumns, decoded_batch, encoded_batch
from controlplane.telemetry.models import ReportBatch


@dataclass(kw_only=True)
class Report:
    """One report; None for what was not measured."""

    job_id: int
    rank: int
    instance: str
    generation: int
    iteration: int
    at: datetime
    samples: int
    position: int = 0
    loss: float | None = None
    data_s: float | None = None
    compute_s: float = 0.0
    push_s: float = 0.0
    pull_s: float = 0.0
    waiting_s: float = 0.0
    coordination_s: float = 0.0
    cpu: float = 0.0
    memory: float = 0.0
    overran: bool = False
    others: dict[str, float] = field(default_factory=dict)
    """Measurements without a field here."""


_OWN = {each.name for each in fields(Report)}
OTHERS = [each.name for each in OF_WORKERS if each.name not in _OWN]


def store_reports(rows: Iterable[Report]) -> None:
    """One batch for each job in the order of the rows."""
    for job_id, group in groupby(rows, lambda row: row.job_id):
        columns = _columns(list(group))
        ReportBatch.objects.create(job_id=job_id, reports=len(columns), data=encoded_batch(columns))


def stored_reports(job_id: int | None = None) -> list[Report]:
    """As they were written, of one job or of all."""
    batches = ReportBatch.objects.order_by("id")
    chosen = batches if job_id is None else batches.filter(job_id=job_id)
    return [row for batch in chosen for row in _rows(batch.job_id, decoded_batch(bytes(batch.data)))]


def change_reports(change: Callable[[Report], dict[str, Any] | None], job_id: int | None = None) -> None:
    """Replace values of stored reports; None removes a report."""
    batches = ReportBatch.objects.order_by("id")
    for batch in batches if job_id is None else batches.filter(job_id=job_id):
        rows = _rows(batch.job_id, decoded_batch(bytes(batch.data)))
        changed = [replace(row, **values) for row in rows if (values := change(row)) is not None]
        columns = _columns(changed)
        batch.reports, batch.data = len(columns), encoded_batch(columns)
        batch.save()


def _columns(rows: list[Report]) -> ReportColumns:
    places: dict[str, int] = {}
    instance = [places.setdefault(row.instance, len(places)) for row in rows]
    values: dict[str, list[Any]] = {"instance": instance, "at_ms": [round(row.at.timestamp() * 1000) for row in rows]}
    own = [name for name in PLACES if name in _OWN]
    values |= {name: [getattr(row, name) for row in rows] for name in own}
    values |= {name: [row.others.get(name) for row in rows] for name in OTHERS}
    columns = {name: np.array(found, np.int64 if name in WHOLE else np.float64) for name, found in values.items()}
    return ReportColumns(instances=list(places), columns=columns)


def _rows(job_id: int, reports: ReportColumns) -> list[Report]:
    found = []
    for place in range(len(reports)):
        values = {name: column[place].item() for name, column in reports.columns.items()}
        known = {name: None if value != value else value for name, value in values.items()}
        others = {name: known[name] for name in OTHERS if known.get(name) is not None}
        own = {name: value for name, value in known.items() if name in _OWN and name != "overran"}
        found.append(
            Report(
                **own | {"instance": reports.instances[known["instance"]]},
                job_id=job_id,
                at=datetime.fromtimestamp(known["at_ms"] / 1000, UTC),
                overran=bool(known["overran"]),
                others=others,
            )
        )
    return found
