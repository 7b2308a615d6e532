"""Traces of the decision path if an OTLP endpoint is configured: a report, the decision, the resulting orders.

Gateway and coordinator export spans separately. Ids are derived from the report, so the parts of a trace belong
together without extra fields in the report. Without an endpoint, nothing is imported.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from django.conf import settings

from controlplane.core.commands import AnyCommand
from controlplane.core.events import Entry, Event, WorkerMessageReceived
from controlplane.protocol.messages import IterationReport

if TYPE_CHECKING:
    from controlplane.runtime.spans import Spans


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The identity of one worker's report of one iteration."""

    job: int
    rank: int
    instance: str
    number: int
    iteration: int


class Arrivals:
    """Reports of one job that have arrived at a gateway and are not in the log yet."""

    def __init__(self, spans: "Spans", job: int) -> None:
        self._spans, self._job = spans, job
        self._waiting: deque[tuple[int, Report | None]] = deque()

    def add(self, event: Event) -> None:
        """Record that an event arrived."""
        self._waiting.append((time.time_ns(), report_of(self._job, event)))

    def appended(self, count: int) -> None:
        """Record that the oldest ``count`` events are in the log."""
        end_ns = time.time_ns()
        for begin_ns, report in [self._waiting.popleft() for _ in range(count)]:
            if report is not None:
                self._spans.report(report, begin_ns, end_ns)

    def clear(self) -> None:
        """Discard all: they were not appended, and their senders resend them."""
        self._waiting.clear()


class Turn:
    """The spans of one read of a job's log by a coordinator."""

    def __init__(self, spans: "Spans", job: int) -> None:
        self._spans, self._job = spans, job
        self._began_ns = self._handled_ns = time.time_ns()
        self._reports: list[tuple[Report, int, int, int]] = []
        self.parents: dict[str, str] = {}
        """By entry: the ``traceparent`` of its decision, for the resulting orders."""

    def handle(self, entries: Sequence[Entry], handle: Callable[[Entry], list[AnyCommand]]) -> list[AnyCommand]:
        """Handle every entry, and measure the duration for each report."""
        commands: list[AnyCommand] = []
        for entry in entries:
            begin_ns, report = time.time_ns(), report_of(self._job, entry.event)
            answer = handle(entry)
            commands += answer
            if report is not None:
                self._reports.append((report, begin_ns, time.time_ns(), len(answer)))
                self.parents[entry.id] = self._spans.parent(report)
        self._handled_ns = time.time_ns()
        return commands

    def committed(self) -> None:
        """Export the spans: the orders are published."""
        end_ns = time.time_ns()
        for report, begin_ns, handled_ns, commands in self._reports:
            self._spans.decision(report, self._began_ns, end_ns, commands=commands)
            self._spans.within_decision(report, "engine", begin_ns, handled_ns)
            self._spans.within_decision(report, "commit", self._handled_ns, end_ns)


def arrivals(job: int) -> Arrivals | None:
    """The recorder of a gateway; None without tracing."""
    return Arrivals(found, job) if (found := _spans()) is not None else None


def turn(job: int) -> Turn | None:
    """The recorder of a coordinator; None without tracing."""
    return Turn(found, job) if (found := _spans()) is not None else None


def sending(parent: str, job: int, rank: int) -> Callable[[], None] | None:
    """A function to call after the orders of the decision ``parent`` were sent; None without tracing."""
    found, begin_ns = _spans(), time.time_ns()
    return None if found is None else lambda: found.orders(parent, job, rank, begin_ns, time.time_ns())


def report_of(job: int, event: Event) -> Report | None:
    """The report that an event brings, if any."""
    if not isinstance(event, WorkerMessageReceived) or not isinstance(event.message, IterationReport):
        return None
    message = event.message
    return Report(job=job, rank=event.rank, instance=event.instance, number=message.number, iteration=message.iteration)


@cache
def _spans() -> "Spans | None":
    if settings.TRACED_PART is None:
        return None
    from controlplane.runtime.spans import Spans, otlp_exporter

    return Spans(otlp_exporter(), traced=settings.TRACED_PART)
