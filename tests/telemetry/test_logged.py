"""What a script logs by name becomes series of its job: bounded in number, one value per iteration."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controlplane.core.events import Entry, WorkerHeard
from controlplane.jobs.models import Job
from controlplane.protocol.messages import IterationReport
from controlplane.telemetry import logged
from controlplane.telemetry.logged import NAMES, logged_series, record_logged
from controlplane.telemetry.models import LoggedSeries
from controlplane.telemetry.projections import Logged, record_events
from tests.frontend import factories

pytestmark = pytest.mark.django_db


def report(iteration: int, *, number: int = 1, generation: int = 1, **series: float) -> IterationReport:
    times = dict.fromkeys(("compute_s", "push_s", "pull_s", "waiting_s", "coordination_s"), 0.1)
    fields: dict[str, Any] = {"samples": 8, "position": 8 * iteration, "loss": 1.0, "cpu": 0.1, "memory": 0.1}
    return IterationReport(number=number, generation=generation, iteration=iteration, logged=series, **fields, **times)


def values(job: Job) -> dict[str, dict[int, float]]:
    return {
        each.name: dict(zip(each.iteration.tolist(), each.value.tolist(), strict=True))
        for each in logged_series(job.pk)
    }


@pytest.fixture
def job() -> Job:
    return factories.make_job(started_at=datetime(2026, 1, 1, tzinfo=UTC))


def test_a_series_is_the_mean_of_the_ranks_over_iterations_that_have_a_value(job: Job) -> None:
    record_logged(job.pk, [report(2, lr=0.5), report(2, lr=1.5, accuracy=0.25), report(3), report(1_004, lr=2.0)])
    record_logged(job.pk, [report(2, lr=1.0), report(4, lr=3.0)])
    assert values(job) == {"accuracy": {2: 0.25}, "lr": {2: 1.0, 4: 3.0, 1_004: 2.0}}


def test_an_iteration_that_was_repeated_counts_as_it_was_done_last(job: Job) -> None:
    record_logged(job.pk, [report(2, lr=1.0, generation=1), report(2, lr=3.0, generation=2)])
    record_logged(job.pk, [report(2, lr=9.0, generation=1), report(2, lr=5.0, generation=2)])
    assert values(job) == {"lr": {2: 4.0}}


def test_a_report_that_comes_twice_is_counted_once(job: Job) -> None:
    for number in (1, 2):
        heard = WorkerHeard(rank=0, instance="r0", message=report(2, number=number, lr=float(number)))
        record_events(job.pk, 1, [Logged(entry=Entry(id=f"{number}-0", event=heard), payload=b"")])
    assert values(job) == {"lr": {2: 1.0}}


def test_a_job_keeps_the_names_that_came_first(job: Job) -> None:
    for k in range(NAMES + 8):
        record_logged(job.pk, [report(k, **{f"s{k:02}": 1.0, "s00": 2.0})])
    assert sorted(values(job)) == [f"s{k:02}" for k in range(NAMES)]
    assert len(values(job)["s00"]) == NAMES + 8


def test_of_very_much_only_the_newest_is_read(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logged, "BLOCKS_READ", 2)
    record_logged(job.pk, [report(1_000 * k, lr=1.0) for k in range(4)])
    assert list(values(job)["lr"]) == [2_000, 3_000]
    assert LoggedSeries.objects.filter(job=job).count() == 4


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2_500), st.floats(-1e6, 1e6), st.sampled_from("ab")), max_size=30),
    st.integers(1, 5),
)
def test_however_reports_are_gathered_the_series_are_the_same(
    job: Job, found: list[tuple[int, float, str]], size: int
) -> None:
    LoggedSeries.objects.all().delete()
    reports = [report(iteration, **{name: value}) for iteration, value, name in found]
    record_logged(job.pk, reports)
    at_once = values(job)
    LoggedSeries.objects.all().delete()
    for start in range(0, len(reports), size):
        record_logged(job.pk, reports[start : start + size])
    assert {name: found.keys() for name, found in values(job).items()} == {n: f.keys() for n, f in at_once.items()}
    for name, found_values in values(job).items():
        assert list(found_values.values()) == pytest.approx(list(at_once[name].values()))
