"""Everything that was measured, as lines."""

import pytest

from controlplane.jobs.models import Job
from controlplane.telemetry.columns import STRETCH
from controlplane.telemetry.measurements import HEADING, measurements
from controlplane.telemetry.models import Report
from tests.telemetry.test_series import job, report

__all__ = ["job"]
AT_MS = 1_772_452_800_000
"""When all of these reports came."""


def line(iteration: int, worker: int, loss: float | None = 2.0) -> tuple[float | None, ...]:
    return (iteration, worker, 1, AT_MS, 64, loss, 0.5, 0.25, 0.25, 1.0, 0.0, 0.5, 0.25)


def test_there_is_a_line_for_each_worker_and_iteration_in_that_order(job: Job) -> None:
    last = STRETCH + 1
    Report.objects.bulk_create(
        [report(job, 1, last), report(job, 1, 0), report(job, 0, last, loss=None), report(job, 0, 0)]
    )
    assert len(HEADING) == len(line(0, 0))
    assert list(measurements(job.pk)) == [line(0, 0), line(0, 1), line(last, 0, None), line(last, 1)]
    assert list(measurements(job.pk, [1])) == [line(0, 1), line(last, 1)]


def test_an_iteration_that_was_done_again_counts_as_it_was_done_last(job: Job) -> None:
    Report.objects.bulk_create([report(job, 0, 0), report(job, 0, 0, generation=2, loss=1.0)])
    assert [(each[2], each[5]) for each in measurements(job.pk)] == [(2, 1.0)]


@pytest.mark.django_db
def test_a_job_that_has_reported_nothing_has_none(job: Job) -> None:
    assert list(measurements(job.pk)) == []
