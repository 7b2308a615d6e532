"""A traceback is one record: whatever others wrote in between, chained or not, with a launcher's prefix or not."""

from datetime import UTC, datetime

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.states import JobState
from controlplane.jobs.models import Job
from controlplane.telemetry.models import LogLine
from frontend.queries.logs import failure, records
from tests.frontend import factories
from tests.frontend.test_pages import text_of

TRACE = (
    "Traceback (most recent call last):",
    '  File "train.py", line 7, in <module>',
    "    load()",
    "ValueError: no such data set",
)
CHAINED = (
    *TRACE,
    "",
    "During handling of the above exception, another exception occurred:",
    "",
    *TRACE[:3],
    "RuntimeError: no",
)


def lines(*written: tuple[int, str]) -> list[LogLine]:
    """One line of a worker each, as (rank, text)."""
    return [
        LogLine(
            pk=place,
            role="worker",
            index=rank,
            instance=f"w{rank}-a",
            at=datetime(2026, 3, 2, tzinfo=UTC),
            level="output",
            text=text,
        )
        for place, (rank, text) in enumerate(written)
    ]


def test_a_traceback_between_lines_of_others_is_one_record() -> None:
    mixed = [(0, "step 1"), *[each for line in TRACE for each in ((2, line), (0, "step"))], (2, "bye")]
    found = records(lines(*mixed))
    [trace] = [each for each in found if each.lines]
    assert (trace.title, trace.level, trace.process, trace.lines) == (
        "ValueError: no such data set",
        "error",
        "w2",
        TRACE,
    )
    assert [each.title for each in found if not each.lines] == ["step 1", *["step"] * 4, "bye"]


def test_a_chain_is_one_record_named_by_its_last_exception() -> None:
    [found] = records(lines(*[(0, text) for text in CHAINED]))
    assert (found.title, len(found.lines)) == ("RuntimeError: no", len(CHAINED))


def test_two_tracebacks_in_a_row_are_two_records() -> None:
    assert [each.title for each in records(lines(*[(0, text) for text in TRACE * 2]))] == [
        "ValueError: no such data set"
    ] * 2


def test_the_prefix_of_a_launcher_is_not_in_the_way() -> None:
    [found] = records(lines(*[(0, f"[rank0]: {text}") for text in TRACE]))
    assert found.title == "ValueError: no such data set"


def test_a_traceback_that_was_cut_off_reports_it() -> None:
    [found] = records(lines(*[(0, text) for text in TRACE[:2]]))
    assert (found.title, len(found.lines)) == ("Incomplete traceback", 2)


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([*CHAINED, "step", "  indented"])), max_size=40))
def test_no_line_is_lost_or_doubled(written: list[tuple[int, str]]) -> None:
    found = records(lines(*written))
    shown = [text for each in found for text in (each.lines or (each.title,))]
    assert sorted(filter(None, shown)) == sorted(text for _, text in written if text)[: len(list(filter(None, shown)))]
    assert sum(text != "" for _, text in written) == sum(text != "" for text in shown)


@pytest.fixture
def failed(db: None) -> Job:
    job = factories.make_job(state=JobState.FAILED, reason="w2 ended with status 1; no checkpoint")
    factories.make_processes(job, factories.make_agents())
    rows = lines(*[(1, text.replace("data set", "file")) for text in TRACE], *[(2, text) for text in TRACE], (1, "bye"))
    for row in rows:
        row.job, row.pk = job, None
    LogLine.objects.bulk_create(rows)
    return job


def test_a_failed_job_names_the_traceback_of_the_process_in_its_reason(failed: Job, viewer: Client) -> None:
    found = failure(failed)
    assert found is not None
    assert (found.process, found.machine, found.title) == ("w2", "machine-2", "ValueError: no such data set")
    page = text_of(viewer, f"/jobs/{failed.pk}/")
    assert "w2 on machine-2: ValueError: no such data set" in page
    assert "line 7, in <module> load()" in page
    assert "traceback, 4 lines" in text_of(viewer, f"/jobs/{failed.pk}/?tab=logs")


def test_without_a_traceback_it_is_the_last_error(failed: Job) -> None:
    LogLine.objects.filter(text__contains="Traceback").delete()
    assert failure(failed) is None
    factories.make_lines(failed)
    found = failure(failed)
    assert found is not None
    assert found.title == "ValueError: no such data set"
