"""Traces of decisions: which spans there are, what they hang together by, and that there are none unasked."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from controlplane.core.events import Entry, StopRequested
from controlplane.runtime import log, names, tracing
from controlplane.runtime.coordinator import coordinate
from controlplane.runtime.embedded.ground import free_port
from controlplane.runtime.executor import frames_decoder
from controlplane.runtime.redis import Client
from controlplane.runtime.spans import Spans, otlp_exporter
from tests.architecture.sources import ROOT
from tests.runtime.support import JOB, Driver, report, submit


class Traced:
    """Spans of this process, as they would be exported."""

    def __init__(self, part: float) -> None:
        self._kept = InMemorySpanExporter()
        self.spans = Spans(self._kept, traced=part)

    def found(self) -> list[ReadableSpan]:
        assert self.spans.provider.force_flush()
        return sorted(self._kept.get_finished_spans(), key=lambda span: span.start_time or 0)


@pytest.fixture(params=[1.0])
def traced(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Traced]:
    kept = Traced(request.param)
    monkeypatch.setattr(tracing, "_spans", lambda: kept.spans)
    yield kept
    kept.spans.close()


def named(found: list[ReadableSpan], name: str) -> list[ReadableSpan]:
    return [span for span in found if span.name == name]


def ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def above(span: ReadableSpan) -> tuple[int, int] | None:
    return (span.parent.trace_id, span.parent.span_id) if span.parent else None


def arrive(*numbers: int) -> None:
    arrivals = tracing.arrivals(JOB)
    assert arrivals is not None
    for number in numbers:
        arrivals.add(report(number))
    arrivals.add(StopRequested(actor="ann"))
    arrivals.appended(len(numbers) + 1)


def test_a_report_its_decision_and_its_orders_are_one_trace(client: Client, driver: Driver, traced: Traced) -> None:
    submit(client)
    arrive(2)
    log.append_event(JOB, report(2), client=client)
    heard = client.pubsub()
    heard.subscribe(names.frames(JOB))
    coordinate(JOB, driver.around())
    messages = [m["data"] for m in iter(lambda: heard.get_message(timeout=0.2), None) if m["type"] == "message"]
    heard.close()
    (frame,) = (frame for message in messages for frame in frames_decoder.decode(message))
    sent = tracing.sending(frame.parent, JOB, frame.index)
    assert sent is not None
    sent()

    found = traced.found()
    assert [span.name for span in found] == ["report", "decision", "engine", "commit", "orders"]
    root, decision, engine, commit, orders = found
    assert above(root) is None
    assert above(decision) == ids(root)
    assert {above(span) for span in (engine, commit, orders)} == {ids(decision)}
    about = {"paceline.job": JOB, "paceline.worker": "w0", "paceline.instance": "w0.0.1", "paceline.iteration": 0}
    assert dict(root.attributes or {}) == about
    assert dict(decision.attributes or {}) == about | {"paceline.commands": 1}
    for span in found:
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.start_time <= span.end_time


def test_every_report_has_a_trace_of_its_own_and_other_events_have_none(
    client: Client, driver: Driver, traced: Traced
) -> None:
    submit(client)
    arrive(2, 3, 4)
    for number in (2, 3, 4):
        log.append_event(JOB, report(number), client=client)
    log.append_event(JOB, StopRequested(actor="ann"), client=client)
    coordinate(JOB, driver.around())
    found = traced.found()
    roots, decisions = named(found, "report"), named(found, "decision")
    assert len({ids(span)[0] for span in roots}) == 3
    assert [above(span) for span in decisions] == [ids(span) for span in roots]


def test_what_could_not_be_appended_has_no_trace(traced: Traced) -> None:
    arrivals = tracing.arrivals(JOB)
    assert arrivals is not None
    arrivals.add(report(2))
    arrivals.clear()
    arrivals.add(report(3))
    arrivals.appended(1)
    assert [(span.attributes or {})["paceline.iteration"] for span in traced.found()] == [1]


@pytest.mark.parametrize("traced", [0.0, 0.3], indirect=True)
def test_a_part_of_all_reports_is_traced_whole(traced: Traced, request: pytest.FixtureRequest) -> None:
    numbers = range(2, 402)
    arrive(*numbers)
    turn = tracing.turn(JOB)
    assert turn is not None
    turn.handle([Entry(id=f"{number}-0", event=report(number)) for number in numbers], lambda entry: [])
    turn.committed()
    found = traced.found()
    roots = {ids(span)[0] for span in named(found, "report")}
    for name in ("decision", "engine", "commit"):
        assert {ids(span)[0] for span in named(found, name)} == roots
    part = request.node.callspec.params["traced"]
    assert (len(roots) == 0) if part == 0 else (0.15 < len(roots) / 400 < 0.45)


def test_a_receiver_that_is_away_does_not_hold_up_the_end_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    spans = Spans(otlp_exporter(), traced=1.0)
    found = tracing.report_of(JOB, report(2))
    assert found is not None
    spans.report(found, 1, 2)
    began = time.monotonic()
    spans.close()
    assert time.monotonic() - began < 8  # by then a service that was asked to stop is killed


def test_unasked_nothing_is_imported_and_nothing_is_done(tmp_path: Path) -> None:
    script = """
import sys, django
django.setup()
from controlplane.gateway import hub
from controlplane.runtime import coordinator, tasks, tracing
assert tracing.turn(1) is None and tracing.arrivals(1) is None and tracing.sending("", 1, 0) is None
ours = ("controlplane.runtime.spans", "opentelemetry.sdk.trace", "opentelemetry.exporter", "google")
assert not [name for name in sys.modules if name.startswith(ours)]  # redis-py imports the SDK's metrics where it is
"""
    environment = {"DJANGO_SETTINGS_MODULE": "controlplane.config.settings", "PACELINE_DATA_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
