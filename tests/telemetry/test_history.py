"""Chunks and the rows that are not folded yet, together: always what the rows are."""

from typing import Any

import numpy as np
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controlplane.jobs.models import Job
from controlplane.protocol.measurements import OF_WORKERS
from controlplane.telemetry import folding
from controlplane.telemetry.columns import rollup_names
from controlplane.telemetry.folding import StaleFold, fold, unfolded
from controlplane.telemetry.history import Span, has_detail, read_columns, read_measured, read_windows, width_for
from controlplane.telemetry.metrics import ITERATION
from controlplane.telemetry.models import Chunk, Folded, ReportBatch, Rollup
from controlplane.telemetry.selectors import series
from controlplane.telemetry.stored_reports import folded_until, known_measurements
from tests.support.examples import examples
from tests.support.rows import submitted_job
from tests.telemetry.reports import OTHERS, store_reports, stored_reports
from tests.telemetry.test_series import report


@pytest.fixture
def job(db: None) -> Job:
    return submitted_job(User.objects.create_user("ada"))


def fold_all(job: Job) -> None:
    for _ in fold(job.pk):
        pass


def as_rows_have_it(job: Job, span: Span) -> dict[int, list[tuple[int, int, float]]]:
    """Read row by row: of one iteration the last row of the highest generation counts."""
    found: dict[tuple[int, int], tuple[int, float]] = {}
    for row in sorted(stored_reports(job.pk), key=lambda row: row.generation):
        if span.first <= row.iteration < span.last and (not span.ranks or row.rank in span.ranks):
            found[row.rank, row.iteration] = (row.generation, row.compute_s)
    by_rank: dict[int, list[tuple[int, int, float]]] = {}
    for (rank, iteration), values in sorted(found.items()):
        by_rank.setdefault(rank, []).append((iteration, *values))
    return by_rank


def as_history_has_it(job: Job, span: Span) -> dict[int, list[tuple[int, int, float]]]:
    names = ("iteration", "generation", "compute_s")
    return {
        rank: list(zip(*(columns[name].tolist() for name in names), strict=True))
        for rank, columns in read_columns(job.pk, ("compute_s",), span).items()
    }


iterations = st.integers(0, 30) | st.integers(985, 1015) | st.sampled_from([1999, 2000, 123_456])
wrote = st.lists(st.tuples(st.integers(0, 2), iterations, st.integers(0, 2), st.floats(0, 1e6)), max_size=12)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(wrote, st.integers(0, 3)), min_size=1, max_size=4),
    st.builds(
        lambda ranks, first, count: Span(ranks=ranks, first=first, last=first + count),
        st.lists(st.integers(0, 2), max_size=2),
        st.integers(0, 1100),
        st.sampled_from([1, 10, 900, 10**6]),
    ),
)
def test_chunks_with_open_rows_are_the_rows(
    job: Job, batches: list[tuple[list[tuple[int, int, int, float]], int]], span: Span
) -> None:
    """Any order of arrival, iterations redone, folding broken off anywhere and begun again."""
    for table in (ReportBatch, Chunk, Rollup, Folded):
        table.objects.filter(job=job).delete()
    for number, (written, steps) in enumerate(batches):
        store_reports(
            [
                report(job, rank, k, generation=generation, compute_s=value, instance=f"{number}.{n}")
                for n, (rank, k, generation, value) in enumerate(written)
            ]
        )
        for _, _ in zip(range(steps), fold(job.pk), strict=False):
            pass  # the last one is broken off: its mark may not have moved
        for chosen in (Span(), span):
            assert as_history_has_it(job, chosen) == as_rows_have_it(job, chosen)


def test_rollups_are_those_of_the_rows_before_and_after_folding(job: Job) -> None:
    store_reports([report(job, rank, k, compute_s=k / 8) for rank in range(2) for k in range(1005)])
    before = {width: read_windows(job.pk, width) for width in (1, 10, 100, 1000)}
    fold_all(job)
    store_reports([report(job, 0, 1005, compute_s=9.0)])
    assert (Rollup.objects.count(), unfolded(job.pk)) == (4, 1)
    for width, windows in before.items():
        after = read_windows(job.pk, width)
        assert list(after) == [0, 1]
        assert np.array_equal(after[1].first, windows[1].first)
        names = windows[1].names
        found = [[after[1].of(name, kind) for name in names] for kind in ("count", "sum", "min", "max")]
        assert np.array_equal(found, windows[1].table.transpose(1, 0, 2), equal_nan=True)
    last = read_windows(job.pk, 10)[0]
    assert (last.first[-1], last.of("compute_s", "count")[-1], last.of("compute_s", "max")[-1]) == (1000, 6, 125.5)


def test_a_narrow_span_reads_no_more_of_a_chunk_than_it_needs(job: Job) -> None:
    store_reports([report(job, 0, k) for k in range(100)])
    fold_all(job)
    with CaptureQueriesContext(connection) as captured:
        found = read_columns(job.pk, ("loss",), Span(first=90, last=95))
    assert list(found[0]["iteration"]) == [90, 91, 92, 93, 94]
    assert any("SUBSTR" in query["sql"] and ", 721, 40)" in query["sql"] for query in captured.captured_queries)


def test_two_who_fold_one_job_do_not_mix(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "BLOCKS", 1)
    store_reports([report(job, rank, 0) for rank in range(3)])
    slow = fold(job.pk)
    next(slow)
    fold_all(job)
    with pytest.raises(StaleFold, match=f"job {job.pk}: reports are folded up to"):
        next(slow)
    assert as_history_has_it(job, Span()) == as_rows_have_it(job, Span())


def test_far_behind_it_folds_in_bounded_pieces(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "ROWS", 4)
    for first in range(0, 10, 2):
        store_reports([report(job, 0, k) for k in range(first, first + 2)])
    assert list(fold(job.pk)) == [0, 4, 4, 8, 8, 10]
    assert folded_until(job.pk) == ReportBatch.objects.latest("id").pk


def test_what_is_written_while_folding_is_left_to_the_next_fold(job: Job) -> None:
    store_reports([report(job, 0, k) for k in range(4)])
    before = ReportBatch.objects.latest("id").pk
    slow = fold(job.pk)
    next(slow)
    store_reports([report(job, 0, k) for k in range(4, 6)])
    assert list(slow) == [4]
    assert folded_until(job.pk) == before
    assert as_history_has_it(job, Span()) == as_rows_have_it(job, Span())


def test_pruned_detail_leaves_means(job: Job) -> None:
    store_reports([report(job, 0, k, samples=k, compute_s=float(k)) for k in range(25)])
    fold_all(job)
    for table in (ReportBatch, Chunk):
        table.objects.all().delete()
    assert not has_detail(job.pk)
    found = read_columns(job.pk, ("samples", "compute_s"))[0]
    assert [found[name].tolist() for name in ("iteration", "samples", "compute_s")] == [
        [0, 10, 20],
        [4, 14, 22],
        [4.5, 14.5, 22.0],
    ]
    assert read_columns(job.pk, ("samples",), Span(first=15, last=20))[0]["iteration"].tolist() == [10]


@pytest.mark.parametrize(
    ("iterations_", "workers", "width"), [(1000, 16, 1), (1251, 16, 10), (20_000, 16, 100), (10**8, 16, 1000)]
)
def test_the_width_is_the_smallest_that_fits(iterations_: int, workers: int, width: int) -> None:
    assert width_for(iterations_, workers, 20_000) == width


def test_a_job_without_reports_has_no_columns(job: Job) -> None:
    assert (read_columns(job.pk, ("loss",)), read_windows(job.pk, 10)) == ({}, {})
    list[Any](fold(job.pk))
    assert not Folded.objects.exists()


KEPT_SINCE_ALWAYS = ("samples", "loss", "compute_s", "push_s", "pull_s", "waiting_s", "coordination_s", "cpu", "memory")
LATER = [each.name for each in OF_WORKERS if each.name not in KEPT_SINCE_ALWAYS]


def told(iteration: int, known: set[str]) -> dict[str, Any]:
    """The fields of a row by a release that had these of the later measurements."""
    values = {name: (iteration + 1.0) * (1 + LATER.index(name)) for name in known}
    own = {name: values.pop(name) for name in known if name not in OTHERS}
    return own | {"others": values}


@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sets(st.sampled_from(LATER)), st.booleans()), min_size=1, max_size=5))
def test_history_of_releases_with_fewer_measurements_reads_right(
    job: Job, releases: list[tuple[set[str], bool]]
) -> None:
    """A job continues under one release after another; each folds what it has, or leaves it to the next."""
    ReportBatch.objects.filter(job=job).delete()
    Folded.objects.filter(job=job).delete()
    Chunk.objects.filter(job=job).delete()
    Rollup.objects.filter(job=job).delete()
    for iteration, (known, folds) in enumerate(releases):
        store_reports([report(job, 0, iteration, **told(iteration, known))])
        if folds:
            fold_all(job)
    block = read_measured(job.pk, (*KEPT_SINCE_ALWAYS, *LATER))[0]
    (windows,) = read_windows(job.pk, 10).values()
    knew = [known for known, _ in releases]
    for name in LATER:
        each = 1 + LATER.index(name)
        values = [(k + 1.0) * each if name in known else None for k, known in enumerate(knew)]
        assert [None if np.isnan(value) else value for value in block[name]] == values
        there = [value for value in values if value is not None]
        assert (windows.of(name, "count")[0], windows.of(name, "sum")[0]) == (len(there), sum(there))
    each = 1 + LATER.index("data_s")
    whole = [2.0 + (k + 1.0) * each * ("data_s" in known) for k, known in enumerate(knew)]
    (found,) = series(job_id=job.pk, metrics=["iteration_s"])
    assert found.values == whole
    parts = read_columns(job.pk, ITERATION)[0]
    assert np.sum([parts[name] for name in ITERATION], axis=0).tolist() == whole
    assert known_measurements(job.pk) == {*KEPT_SINCE_ALWAYS}.union(*knew)


def test_of_what_no_report_had_nothing_is_stored(job: Job) -> None:
    store_reports([report(job, 0, 0)])
    fold_all(job)
    assert not set(LATER) & set(Chunk.objects.values_list("column", flat=True))
    assert set(rollup_names(bytes(Rollup.objects.get().by_10))).isdisjoint(LATER)
