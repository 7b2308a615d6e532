"""What is kept of unfolded reports is always what is in the database."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from django.contrib.auth.models import User
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controlplane.jobs.models import Job
from controlplane.telemetry import tails
from controlplane.telemetry.columns import COLUMNS, Rows
from controlplane.telemetry.folding import fold
from controlplane.telemetry.models import Folded, ReportBatch
from controlplane.telemetry.stored_reports import batches_after, folded_until, rows_of
from controlplane.telemetry.tails import forget_tails, tail
from tests.support.examples import examples
from tests.support.rows import submitted_job
from tests.telemetry.reports import Report, store_reports


@pytest.fixture
def job(db: None) -> Job:
    return submitted_job(User.objects.create_user("ada"))


def write(job: Job, *iterations: int, compute_s: float = 1.0, rank: int = 0, joules: bool = False) -> None:
    others = {"joules": 2.0} if joules else {}
    store_reports(
        Report(
            job_id=job.pk,
            rank=rank,
            instance=f"w{rank}.0.1",
            generation=1,
            iteration=iteration,
            at=datetime(2026, 1, 1, tzinfo=UTC),
            samples=8,
            compute_s=compute_s,
            others=others,
        )
        for iteration in iterations
    )


def fold_all(job: Job) -> None:
    for _ in fold(job.pk):
        pass


def kept(job: Job) -> Rows:
    return tail(job.pk, folded_until(job.pk), COLUMNS)


def assert_as_stored(job: Job) -> None:
    found, expected = kept(job), rows_of(batches_after(job.pk, folded_until(job.pk)), COLUMNS)[0]
    np.testing.assert_array_equal(found.rank, expected.rank)
    np.testing.assert_array_equal(found.iteration, expected.iteration)
    assert found.columns.keys() == expected.columns.keys()
    for name in COLUMNS:
        np.testing.assert_array_equal(found.columns[name], expected.columns[name], err_msg=name)


steps = st.lists(
    st.just("fold")
    | st.just("read")
    | st.tuples(st.lists(st.integers(0, 2000), min_size=1, max_size=4), st.integers(0, 2), st.booleans()),
    max_size=25,
)


@pytest.mark.django_db
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps)
def test_it_is_what_is_stored_whatever_was_written_and_folded(job: Job, steps: list[Any]) -> None:
    for step in steps:
        if step == "fold":
            fold_all(job)
        elif step == "read":
            assert_as_stored(job)
        else:
            iterations, rank, joules = step
            write(job, *iterations, rank=rank, joules=joules)
    assert_as_stored(job)


def test_each_batch_is_decoded_once(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    usual = tails.decoded_batch
    monkeypatch.setattr(tails, "decoded_batch", lambda data: decoded.append(len(data)) or usual(data))
    for iteration in range(100):
        write(job, iteration)
        assert_as_stored(job)
    assert len(decoded) == 100


def test_it_keeps_few_parts(job: Job) -> None:
    for iteration in range(200):
        write(job, iteration)
        kept(job)
    assert len(tails._tails[job.pk]._parts) <= 8


def test_another_history_in_its_place_is_noticed(job: Job) -> None:
    for iteration in range(4):
        write(job, iteration)
    assert_as_stored(job)
    numbers = list(ReportBatch.objects.order_by("id").values_list("id", flat=True))
    ReportBatch.objects.all().delete()
    assert_as_stored(job)
    write(job, 7, 8, compute_s=2.0)
    ReportBatch.objects.update(id=numbers[-1])
    assert_as_stored(job)


def test_an_older_state_of_the_database_is_read_anew(job: Job) -> None:
    for iteration in range(4):
        write(job, iteration)
    mark = folded_until(job.pk)
    kept(job)
    fold_all(job)
    write(job, 5)
    assert_as_stored(job)
    Folded.objects.filter(job=job).update(batch_id=mark)
    assert_as_stored(job)


@pytest.mark.django_db(transaction=True)
def test_threads_read_the_same() -> None:
    job = submitted_job(User.objects.create_user("ada"))

    def read(_: int) -> list[int]:
        try:
            return tail(job.pk, 0, COLUMNS).iteration.tolist()
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        for count in range(1, 11):
            write(job, count)
            assert list(pool.map(read, range(8))) == [list(range(1, count + 1))] * 8


def test_too_many_reports_are_not_kept_until_they_are_folded(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "MOST_REPORTS", 5)
    write(job, 1, 2, 3)
    write(job, 4, 5, 6)
    for _ in range(2):
        assert_as_stored(job)
        assert len(tails._tails[job.pk]) == 0
    fold_all(job)
    write(job, 7)
    assert_as_stored(job)
    assert len(tails._tails[job.pk]) == 1


def test_few_jobs_are_kept(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "MOST_JOBS", 2)
    for _ in range(3):
        kept(submitted_job(User.objects.get(username="ada")))
    assert len(tails._tails) == 2


def test_the_jobs_that_were_read_last_are_kept(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "MOST_REPORTS", 5)
    others = [submitted_job(User.objects.get(username="ada")) for _ in range(2)]
    for each in (job, *others):
        write(each, 1, 2)
    for each in (job, others[0], job, others[1], others[1]):
        assert_as_stored(each)
    assert list(tails._tails) == [job.pk, others[1].pk]
    forget_tails()
    assert_as_stored(others[0])
