"""Log lines of processes: from the agent's message to rows, each once, bounded, and behind everything else."""

import asyncio
from threading import Event
from typing import Any

import pytest
from django.contrib.auth.models import User

from controlplane.jobs.models import Job
from controlplane.protocol.messages import Line, LogLines, ProcessName
from controlplane.protocol.spec import spec_document
from controlplane.runtime import ingest, log, loglines, names
from controlplane.runtime.faults import armed
from controlplane.runtime.ingest import Ingest
from controlplane.runtime.loglines import LineWriter, append_lines
from controlplane.runtime.redis import Client
from controlplane.runtime.wire import Caller
from controlplane.telemetry.models import LogLine, LogTally
from controlplane.telemetry.selectors import dropped_lines
from tests.runtime.support import SPEC, Died, die, greeted, report, submit
from tests.telemetry.reports import stored_reports

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def job(client: Client, enqueued: list[int], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(loglines, "EACH_S", 0.0)
    row = Job.objects.create(name="digits", spec=spec_document(SPEC), submitted_by=User.objects.create(username="ann"))
    submit(client, row.pk)
    return row.pk


def tell(job: int, *texts: str, index: int = 0, dropped: int = 0, level: Any = "info") -> None:
    """As the gateway does with an agent's message."""
    process = ProcessName(job=job, role="worker", index=index, instance=f"w{index}.0.1")
    said = LogLines(process=process, lines=[Line(level=level, text=text) for text in texts], dropped=dropped)

    async def append() -> None:
        caller = Caller()
        await append_lines(caller, said)
        caller.close()

    asyncio.run(append())


def written() -> list[tuple[str, str, str]]:
    return [(line.process, line.level, line.text) for line in LogLine.objects.order_by("id")]


def test_lines_become_rows_with_their_process_and_level(client: Client, job: int) -> None:
    tell(job, "connected", "epoch 1")
    tell(job, "a NUL, which no gateway lets through\0")
    tell(job, "no such data set", index=1, level="error")
    assert LineWriter(client).step() == {job: "submitted"}
    assert written() == [
        ("w0", "info", "connected"),
        ("w0", "info", "epoch 1"),
        ("w1", "warning", "1 lines were dropped: the buffer was full"),
        ("w1", "error", "no such data set"),
    ]
    assert client.xlen(names.lines(job)) == 0


@pytest.mark.parametrize("point", ["lines.written", "lines.committed"])
def test_lines_are_neither_lost_nor_doubled_where_the_writer_dies(client: Client, job: int, point: str) -> None:
    tell(job, "one", "two")
    with armed(point, die), pytest.raises(Died):
        LineWriter(client).step()
    tell(job, "three")
    writer = LineWriter(client)
    while writer.step():
        pass
    assert [text for _, _, text in written()] == ["one", "two", "three"]


def test_a_stream_is_bounded_and_what_it_had_no_room_for_is_reported(
    client: Client, job: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loglines, "MOST_ENTRIES", 100)
    tell(job, "first")
    writer = LineWriter(client)
    writer.step()
    for number in range(400):
        tell(job, f"a{number}", f"b{number}", dropped=int(number == 399))
    kept = client.xlen(names.lines(job))
    assert kept < 250
    while writer.step():
        pass
    texts = [text for _, _, text in written()]
    assert texts[1] == f"{2 * (400 - kept)} lines were dropped: the buffer was full"
    assert texts[-3:] == ["1 lines were dropped: the buffer was full", "a399", "b399"]
    assert len(texts) == 1 + 1 + 2 * kept + 1


def test_reports_are_sent_before_a_flood_of_log_lines(
    client: Client, job: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one round all reports come first, and only then a bounded number of lines."""
    for number in range(60):
        tell(job, *(f"{number}.{line}" for line in range(100)))
    greeted(job)
    for number in range(2, 202):
        log.append_event(job, report(number), client=client)
    order: list[tuple[str, int, int]] = []
    write, step = ingest.write_batch, LineWriter.step
    monkeypatch.setattr(ingest, "write_batch", lambda *given: (write(*given), order.append(_counts("reports")))[0])
    monkeypatch.setattr(LineWriter, "step", lambda self: (step(self), order.append(_counts("lines")))[0])
    Ingest(client, Event(), wait_s=0.001).step()
    assert order == [("reports", 200, 0), ("lines", 200, loglines.ENTRIES * 100)]


def _counts(what: str) -> tuple[str, int, int]:
    return what, len(stored_reports()), LogLine.objects.count()


def test_the_stream_of_a_job_that_is_over_is_forgotten(client: Client, job: int) -> None:
    tell(job, "last words")
    writer = LineWriter(client)
    writer.step()
    writer.step()
    assert client.sismember(names.LINES_JOBS, str(job)), "it lives"
    client.srem(names.LIVE_JOBS, job)
    writer.step()
    assert client.keys("*lines*") == []


def test_lines_that_cannot_be_written_do_not_stop_those_of_others(client: Client, job: int) -> None:
    tell(job + 1, "of no job")
    tell(job, "fine")
    assert LineWriter(client).step() == {job: "submitted"}
    assert [text for _, _, text in written()] == ["fine"]


def test_a_job_keeps_its_last_lines_and_how_many_were_dropped(
    client: Client, job: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loglines, "MOST_LINES", 100)
    monkeypatch.setattr(loglines, "SLACK", 10)
    other = Job.objects.create(name="other", spec=spec_document(SPEC)).pk
    tell(other, "of another job")
    writer, said = LineWriter(client), [f"line {number}" for number in range(260)]
    for begin in range(0, 260, 20):
        tell(job, *said[begin : begin + 20])
        writer.step()
        assert LogLine.objects.filter(job=job).count() <= 110
    kept = [line.text for line in LogLine.objects.filter(job=job).order_by("id")]
    assert kept == said[-len(kept) :]
    assert dropped_lines(job) == 260 - len(kept)
    assert (dropped_lines(other), LogLine.objects.filter(job=other).count()) == (0, 1)


def test_lines_from_before_there_was_a_bound_count(client: Client, job: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loglines, "MOST_LINES", 10)
    monkeypatch.setattr(loglines, "SLACK", 0)
    tell(job, *(f"line {number}" for number in range(10)))
    LineWriter(client).step()
    LogTally.objects.all().delete()
    tell(job, "one more")
    LineWriter(client).step()
    assert (dropped_lines(job), LogLine.objects.filter(job=job).count()) == (1, 10)
