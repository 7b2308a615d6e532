"""Counters of running jobs: every report once, in the bucket of its length, whatever the batches."""

from itertools import pairwise

import pytest
from django.contrib.auth.models import User
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from controlplane.jobs.models import Job
from controlplane.protocol.messages import IterationReport
from controlplane.telemetry.batches import Received, columns_of
from controlplane.telemetry.metrics import ITERATION
from controlplane.telemetry.models import Tally, WorkerSums
from controlplane.telemetry.tallies import (
    BOUNDS_MS,
    DECISION_S,
    ITERATION_S,
    OF_JOB,
    WITHOUT_BOUND,
    tally_decisions,
    tally_reports,
)
from tests.support.examples import examples
from tests.support.rows import submitted_job


@pytest.fixture
def job(db: None) -> Job:
    return submitted_job(User.objects.create_user("ada"))


def heard(rank: int = 0, *, at_ms: int = 1_000, instance: str = "w0-a", **measured: float) -> Received:
    values = dict.fromkeys(("compute_s", "push_s", "pull_s", "waiting_s", "coordination_s"), 0.0)
    report = IterationReport(
        number=2, generation=1, iteration=0, position=0, **({"samples": 8, "loss": 0.5} | values | measured)
    )
    return Received(rank=rank, instance=instance, at_ms=at_ms, report=report)


def buckets(job: Job, name: str, rank: int) -> dict[int, int]:
    return dict(Tally.objects.filter(job=job, name=name, rank=rank).values_list("upto_ms", "count"))


def test_a_duration_at_a_bound_is_in_its_bucket_and_one_beyond_all_in_the_last(job: Job) -> None:
    tally_reports(
        job.pk, columns_of([heard(compute_s=seconds) for seconds in (0.0, 0.01, 0.0101, 60.0, 60.1, 86_400.0)])
    )
    assert buckets(job, ITERATION_S, 0) == {10: 2, 25: 1, 60_000: 1, WITHOUT_BOUND: 2}


def test_phases_add_up_and_the_last_values_stay(job: Job) -> None:
    phases = dict(zip(ITERATION, (0.1, 0.2, 0.3, 0.4, 0.5, 0.6), strict=True))
    tally_reports(job.pk, columns_of([heard(**phases, cpu=0.3, gpu_power=250.0)]))
    tally_reports(job.pk, columns_of([heard(at_ms=9_000, instance="w0-b", samples=4, compute_s=1.0, cpu=0.7)]))
    (row,) = WorkerSums.objects.filter(job=job)
    assert [getattr(row, name) for name in ITERATION] == pytest.approx([0.1, 1.2, 0.3, 0.4, 0.5, 0.6])
    assert (row.reports, row.samples, row.instance, row.at_ms) == (2, 12, "w0-b", 9_000)
    assert row.newest == {"loss": 0.5, "cpu": 0.7, "memory": 0.0}


def test_what_a_worker_does_not_measure_adds_nothing(job: Job) -> None:
    told = heard(compute_s=0.2)
    assert told.report.data_s is UNSET
    tally_reports(job.pk, columns_of([told]))
    assert WorkerSums.objects.get(job=job).data_s == 0.0


seconds = st.floats(0.0, 100.0)


@given(batches=st.lists(st.lists(st.tuples(st.integers(0, 2), seconds), max_size=5), max_size=5))
@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_counters_do_not_depend_on_batches(job: Job, batches: list[list[tuple[int, float]]]) -> None:
    Tally.objects.all().delete()
    WorkerSums.objects.all().delete()
    for batch in batches:
        tally_reports(job.pk, columns_of([heard(rank, compute_s=value) for rank, value in batch]))
    for rank in range(3):
        values = [value for batch in batches for at, value in batch if at == rank]
        bounds = (0, *BOUNDS_MS[ITERATION_S])
        expected = {
            upper: count
            for lower, upper in pairwise(bounds)
            if (count := sum(lower < value * 1000 <= upper or (lower, value) == (0, 0.0) for value in values))
        }
        assert buckets(job, ITERATION_S, rank) == expected
        total = sum(Tally.objects.filter(rank=rank).values_list("seconds", flat=True))
        assert total == pytest.approx(sum(values))


def test_decisions_are_counted_for_the_job(job: Job) -> None:
    tally_decisions(job.pk, [0.001, 0.002, 0.004])
    tally_decisions(job.pk, [3.0])
    assert buckets(job, DECISION_S, OF_JOB) == {2: 2, 5: 1, 10_000: 1}
