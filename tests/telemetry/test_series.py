"""Series of measurements."""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from django.contrib.auth.models import User
from hypothesis import given
from hypothesis import strategies as st

from controlplane.jobs.models import Job
from controlplane.protocol.measurements import OF_WORKERS
from controlplane.telemetry.metrics import METRICS
from controlplane.telemetry.models import Evaluation
from controlplane.telemetry.selectors import Series, series, thin
from tests.support.rows import submitted_job
from tests.telemetry.reports import OTHERS, Report, store_reports

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def report(job: Job, rank: int, iteration: int, **more: Any) -> Report:
    fields: dict[str, Any] = {
        "instance": f"{rank}-a",
        "generation": 1,
        "at": NOON,
        "samples": 64,
        "position": 0,
        "loss": 2.0,
        "compute_s": 0.5,
        "push_s": 0.25,
        "pull_s": 0.25,
        "waiting_s": 1.0,
        "coordination_s": 0.0,
        "cpu": 0.5,
        "memory": 0.25,
        "overran": False,
    }
    return Report(job_id=job.pk, rank=rank, iteration=iteration, **fields | more)


@pytest.fixture
def job(db: None) -> Job:
    return submitted_job(User.objects.create_user("ada"))


def test_a_series_per_worker_in_order_of_iterations(job: Job) -> None:
    store_reports([report(job, 1, 0), report(job, 0, 1, compute_s=1.5), report(job, 0, 0)])
    assert series(job_id=job.pk, metrics=["iteration_s"]) == [
        Series(metric="iteration_s", unit="s", rank=0, raw_points=2, iterations=[0, 1], values=[2.0, 3.0]),
        Series(metric="iteration_s", unit="s", rank=1, raw_points=1, iterations=[0], values=[2.0]),
    ]


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        ("samples", 64.0),
        ("busy_s", 1.0),
        ("communication_s", 0.5),
        ("speed", 64.0),
        ("throughput", 32.0),
        ("loss", 2.0),
        ("cpu", 0.5),
    ],
)
def test_metrics_follow_the_one_definition_of_time(job: Job, metric: str, value: float) -> None:
    store_reports([report(job, 0, 0)])
    assert [found.values for found in series(job_id=job.pk, metrics=[metric])] == [[value]]


def test_every_metric_can_be_read(job: Job) -> None:
    others = {each.name: each.least for each in OF_WORKERS if each.name in OTHERS}
    store_reports([report(job, 0, 0, data_s=0.0, others=others)])
    assert [found.metric for found in series(job_id=job.pk, metrics=METRICS)] == list(METRICS)


def test_what_has_no_value_is_left_out(job: Job) -> None:
    idle = {"samples": 0, "compute_s": 0.0, "push_s": 0.0, "pull_s": 0.0}
    store_reports([report(job, 0, 0, loss=None), report(job, 0, 1, **idle), report(job, 0, 2)])
    found = series(job_id=job.pk, metrics=["loss", "speed"])
    assert [(s.metric, s.iterations, s.raw_points) for s in found] == [("loss", [1, 2], 2), ("speed", [0, 2], 2)]


def test_an_iteration_that_was_redone_counts_as_done_last(job: Job) -> None:
    again = report(job, 0, 1, generation=2, instance="0-b", loss=1.0)
    store_reports([again, report(job, 0, 0), report(job, 0, 1), report(job, 0, 2)])
    (found,) = series(job_id=job.pk, metrics=["loss"])
    assert (found.iterations, found.values) == ([0, 1, 2], [2.0, 1.0, 2.0])


def test_workers_and_the_beginning_can_be_chosen(job: Job) -> None:
    store_reports([report(job, rank, k) for rank in range(3) for k in range(4)])
    found = series(job_id=job.pk, metrics=["loss"], ranks=[0, 2], since=3)
    assert [(s.rank, s.iterations) for s in found] == [(0, [3]), (2, [3])]


def test_scores_belong_to_the_job_as_a_whole(job: Job) -> None:
    scores = [(20, 0.75), (40, None), (60, 0.875)]
    Evaluation.objects.bulk_create(
        Evaluation(job=job, iteration=k, at=NOON, elapsed_s=1.0, loss=0.5, accuracy=accuracy, samples=360)
        for k, accuracy in scores
    )
    assert series(job_id=job.pk, metrics=["accuracy"]) == [
        Series(metric="accuracy", unit="", rank=None, raw_points=2, iterations=[20, 60], values=[0.75, 0.875])
    ]


def test_a_job_without_reports_has_no_worker_series_and_an_empty_score(job: Job) -> None:
    assert series(job_id=job.pk, metrics=["loss", "accuracy"]) == [
        Series(metric="accuracy", unit="", rank=None, raw_points=0, iterations=[], values=[])
    ]


def test_thinning_reports_what_there_was(job: Job) -> None:
    store_reports([report(job, 0, k) for k in range(100)])
    (found,) = series(job_id=job.pk, metrics=["loss"], points=10)
    assert (len(found.iterations), found.raw_points, found.thinned) == (10, 100, True)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=400), st.integers(4, 50))
def test_thinning_keeps_the_ends_and_gives_points_of_the_line(values: list[float], points: int) -> None:
    x, y = np.arange(len(values)), np.array(values)
    thin_x, thin_y = thin(x, y, points)
    assert len(thin_x) <= max(points, 4)
    assert (thin_x[0], thin_x[-1]) == (0, len(values) - 1)
    assert np.array_equal(thin_y, y[thin_x])
    assert np.all(np.diff(thin_x) > 0)


def test_thinning_keeps_a_single_spike() -> None:
    y = np.zeros(10_000)
    y[4321] = 9.0
    assert thin(np.arange(10_000), y, 100)[1].max() == 9.0
