"""What was measured, as a file."""

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from controlplane.telemetry.models import Report
from tests.support.rows import submitted_job
from tests.telemetry.test_series import report


@pytest.mark.django_db
def test_every_report_can_be_had_as_csv(viewer: APIClient) -> None:
    job = submitted_job(User.objects.create_user("ada"))
    Report.objects.bulk_create([report(job, rank, k, loss=None) for rank in range(3) for k in range(2)])
    reply = viewer.get(f"/api/v1/jobs/{job.pk}/measurements?worker=0&worker=2")
    assert reply["Content-Disposition"] == f'attachment; filename="job-{job.pk}-measurements.csv"'
    rest = "1,1772452800000,64,,0.5,0.25,0.25,1.0,0.0,0.5,0.25"
    assert b"".join(reply.streaming_content).decode().splitlines() == [  # type: ignore[attr-defined]
        "iteration,worker,generation,at_ms,samples,loss,compute_s,push_s,pull_s,waiting_s,coordination_s,cpu,memory",
        *(f"{iteration},{rank},{rest}" for iteration in range(2) for rank in (0, 2)),
    ]
