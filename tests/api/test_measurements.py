"""What was measured, as a file."""

import asyncio
from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from django.test import AsyncRequestFactory
from rest_framework.request import Request
from rest_framework.test import APIClient

from controlplane.api.streaming import LINES_AT_ONCE, streamed
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


def test_under_asgi_lines_are_made_as_they_are_sent() -> None:
    """At most so many at a time, however many there are."""
    made: list[int] = []

    def lines() -> Iterator[str]:
        for number in range(LINES_AT_ONCE + 2):
            made.append(number)
            yield f"{number}\n"

    async def sent() -> list[tuple[int, int]]:
        parts = streamed(Request(AsyncRequestFactory().get("/")), lines())
        return [(part.count("\n"), len(made)) async for part in parts]

    assert asyncio.run(sent()) == [(LINES_AT_ONCE, LINES_AT_ONCE), (2, LINES_AT_ONCE + 2)]
