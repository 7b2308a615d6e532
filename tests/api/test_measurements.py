"""What was measured, as a file."""

import csv

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from controlplane.protocol.measurements import OF_WORKERS
from tests.support.rows import submitted_job
from tests.telemetry.reports import store_reports
from tests.telemetry.test_series import report

UNKNOWN = {each.name for each in OF_WORKERS if each.is_optional}


@pytest.mark.django_db
def test_every_report_can_be_had_as_csv(viewer: APIClient) -> None:
    job = submitted_job(User.objects.create_user("ada"))
    store_reports([report(job, rank, k, loss=None) for rank in range(3) for k in range(2)])
    reply = viewer.get(f"/api/v1/jobs/{job.pk}/measurements?worker=0&worker=2")
    assert reply["Content-Disposition"] == f'attachment; filename="job-{job.pk}-measurements.csv"'
    lines = list(csv.DictReader(b"".join(reply.streaming_content).decode().splitlines()))  # type: ignore[attr-defined]
    assert [(line["iteration"], line["worker"]) for line in lines] == [("0", "0"), ("0", "2"), ("1", "0"), ("1", "2")]
    assert {name for name, value in lines[0].items() if not value} == {"loss", *UNKNOWN}
    told = {"generation": "1", "at_ms": "1772452800000", "samples": "64", "compute_s": "0.5", "memory": "0.25"}
    assert told.items() <= lines[0].items()
