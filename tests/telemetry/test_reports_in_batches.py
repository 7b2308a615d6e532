"""The migration of reports: what was not folded yet is read from batches, as it was read from rows."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from controlplane.telemetry.folding import fold
from controlplane.telemetry.history import read_measured
from tests.telemetry.reports import stored_reports

NOON = datetime(2026, 3, 2, 12, 0, 0, 125_000, tzinfo=UTC)


def values(**changes: Any) -> dict[str, Any]:
    parts = dict.fromkeys(("push_s", "pull_s", "waiting_s", "coordination_s", "cpu", "memory"), 0.25)
    return (
        {"rank": 0, "generation": 1, "samples": 8, "position": 2**40, "overran": True, "loss": None} | parts | changes
    )


@pytest.mark.django_db(transaction=True)
def test_rows_that_were_not_folded_become_batches() -> None:
    MigrationExecutor(connection).migrate([("telemetry", "0007_logged_series")])
    try:
        loader = MigrationExecutor(connection).loader
        apps = loader.project_state([("telemetry", "0007_logged_series"), *loader.graph.leaf_nodes("jobs")]).apps
        job = apps.get_model("jobs", "Job").objects.create(name="digits", spec={}, state="running")
        rows = [
            apps.get_model("telemetry", "Report").objects.create(
                job=job,
                instance=f"w0.{k // 2}",
                iteration=k,
                at=NOON + timedelta(seconds=k),
                compute_s=k / 8,
                others={"gpu_power": 100.0 + k} if k == 3 else {},
                **values(),
            )
            for k in range(4)
        ]
        apps.get_model("telemetry", "Folded").objects.create(job=job, report_id=rows[0].pk)
    finally:
        MigrationExecutor(connection).migrate(MigrationExecutor(connection).loader.graph.leaf_nodes())
    found = stored_reports(job.pk)
    assert [(row.iteration, row.instance, row.at, row.compute_s, row.loss) for row in found] == [
        (1, "w0.0", NOON + timedelta(seconds=1), 0.125, None),
        (2, "w0.1", NOON + timedelta(seconds=2), 0.25, None),
        (3, "w0.1", NOON + timedelta(seconds=3), 0.375, None),
    ]
    assert [(row.position, row.overran, row.data_s, row.others) for row in found[1:]] == [
        (2**40, True, None, {}),
        (2**40, True, None, {"gpu_power": 103.0}),
    ]
    list[Any](fold(job.pk))
    assert read_measured(job.pk, ("compute_s",))[0]["compute_s"].tolist() == [0.125, 0.25, 0.375]
