"""Everything that was measured, as lines."""

from typing import Any

import pytest

from controlplane.jobs.models import Job
from controlplane.telemetry.columns import STRETCH
from controlplane.telemetry.export import HEADING, measurements
from controlplane.telemetry.folding import fold
from tests.telemetry.reports import store_reports
from tests.telemetry.test_series import job, report

__all__ = ["job"]
AT_MS = 1_772_452_800_000
"""When all of these reports came."""


def line(iteration: int, worker: int, **changes: Any) -> tuple[float | None, ...]:
    """What a report of ``test_series`` gives: of a number that it lacks, nothing."""
    told = {"iteration": iteration, "worker": worker, "generation": 1, "at_ms": AT_MS, "samples": 64, "loss": 2.0}
    times = {"compute_s": 0.5, "push_s": 0.25, "pull_s": 0.25, "waiting_s": 1.0, "coordination_s": 0.0}
    return tuple((told | times | {"cpu": 0.5, "memory": 0.25} | changes).get(name) for name in HEADING)


def test_there_is_a_line_for_each_worker_and_iteration_in_that_order(job: Job) -> None:
    last = STRETCH + 1
    store_reports([report(job, 1, last), report(job, 1, 0), report(job, 0, last, loss=None), report(job, 0, 0)])
    assert list(measurements(job.pk)) == [line(0, 0), line(0, 1), line(last, 0, loss=None), line(last, 1)]
    assert list(measurements(job.pk, [1])) == [line(0, 1), line(last, 1)]


def test_an_iteration_that_was_done_again_counts_as_it_was_done_last(job: Job) -> None:
    store_reports([report(job, 0, 0), report(job, 0, 0, generation=2, loss=1.0)])
    assert list(measurements(job.pk)) == [line(0, 0, generation=2, loss=1.0)]


def test_every_measurement_is_exported_wherever_it_is_kept(job: Job) -> None:
    store_reports([report(job, 0, 0, data_s=0.125, others={"gpu_memory": 2.0**31, "gpu_power": 300.5})])
    expected = [line(0, 0, data_s=0.125, gpu_memory=2.0**31, gpu_power=300.5)]
    assert list(measurements(job.pk)) == expected
    list(fold(job.pk))
    assert list(measurements(job.pk)) == expected


@pytest.mark.django_db
def test_a_job_that_has_reported_nothing_has_none(job: Job) -> None:
    assert list(measurements(job.pk)) == []
