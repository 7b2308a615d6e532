"""What a script logs by name becomes series of its job: bounded in number, one value per iteration."""

from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controlplane.core.events import Entry, WorkerMessageReceived
from controlplane.jobs.models import Job
from controlplane.telemetry import logged
from controlplane.telemetry.blobs import header
from controlplane.telemetry.logged import NAMES, logged_series, record_logged
from controlplane.telemetry.models import LoggedSeries
from controlplane.telemetry.projections import Logged, record_events
from tests.frontend import factories
from tests.telemetry.logging_reports import report

pytestmark = pytest.mark.django_db


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


def test_a_report_that_is_not_the_next_of_its_sender_is_not_counted(job: Job) -> None:
    for number, is_next in ((1, True), (2, False)):
        heard = WorkerMessageReceived(rank=0, instance="r0", message=report(2, number=number, lr=float(number)))
        record_events(job.pk, 1, [Logged(entry=Entry(id=f"{number}-0", event=heard), payload=b"")], [is_next])
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


def stored(job: Job, name: str) -> LoggedSeries:
    return LoggedSeries.objects.get(job=job, name=name)


LATER = np.dtype([("least", "<f8"), ("sum", "<f8"), ("generation", "<i4"), ("count", "<i4")])
"""What a release could store that knows one field more."""


def test_a_series_written_before_a_field_was_added_reads_right_after_it(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_logged(job.pk, [report(2, lr=0.5), report(4, lr=3.0)])
    monkeypatch.setattr(logged, "ENTRY", LATER)
    assert values(job) == {"lr": {2: 0.5, 4: 3.0}}


def test_fields_of_another_release_that_are_not_known_here_are_left_out(job: Job) -> None:
    block = np.array([(9.0, 3.0, 1, 2), (9.0, 5.0, 1, 1)], LATER)
    fields = [f"{name}:{LATER[name].str}" for name in LATER.names or ()]
    data = header(logged.SERIES_FORMAT, fields) + block.tobytes()
    LoggedSeries.objects.create(job=job, name="lr", number=1, data=data)
    assert values(job) == {"lr": {1_000: 1.5, 1_001: 5.0}}
    record_logged(job.pk, [report(1_001, lr=7.0)])
    assert values(job) == {"lr": {1_000: 1.5, 1_001: 6.0}}


def test_a_series_that_was_stored_without_a_header_is_read(job: Job) -> None:
    record_logged(job.pk, [report(2, lr=0.5)])
    row = stored(job, "lr")
    fields = [f"{name}:{logged.UNNAMED[name].str}" for name in logged.UNNAMED.names or ()]
    row.data = bytes(row.data).removeprefix(header(logged.SERIES_FORMAT, fields))
    assert len(row.data) == 3 * logged.UNNAMED.itemsize
    row.save()
    assert values(job) == {"lr": {2: 0.5}}


def test_a_series_of_a_later_format_is_refused(job: Job) -> None:
    LoggedSeries.objects.create(job=job, name="lr", number=0, data=b"series\x00\x02" + b"x" * 40)
    with pytest.raises(ValueError, match="written by a later release"):
        values(job)
