"""Traces of the decision path, where an OTLP endpoint is named: a report, the decision on it, the orders that follow.

Gateway and coordinator each export what they did. The ids follow from the report itself, so the parts of a trace belong
together although nothing travels with the report. Where no endpoint is named nothing is imported and nothing is done.
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
    """One worker's report of one iteration, as a trace names it."""

    job: int
    rank: int
    instance: str
    number: int
    iteration: int


class Arrivals:
    """Reports of one job between their arrival at a gateway and their place in the log."""

    def __init__(self, spans: "Spans", job: int) -> None:
        self._spans, self._job = spans, job
        self._waiting: deque[tuple[int, Report | None]] = deque()

    def add(self, event: Event) -> None:
        """An event has arrived."""
        self._waiting.append((time.time_ns(), report_of(self._job, event)))

    def appended(self, count: int) -> None:
        """So many of the oldest events are in the log."""
        end_ns = time.time_ns()
        for begin_ns, report in [self._waiting.popleft() for _ in range(count)]:
            if report is not None:
                self._spans.report(report, begin_ns, end_ns)

    def clear(self) -> None:
        """None of them will be: their senders say them again."""
        self._waiting.clear()


class Turn:
    """What a coordinator makes of one read of a job's log."""

    def __init__(self, spans: "Spans", job: int) -> None:
        self._spans, self._job = spans, job
        self._began_ns = self._handled_ns = time.time_ns()
        self._reports: list[tuple[Report, int, int, int]] = []
        self.parents: dict[str, str] = {}
        """By entry: the ``traceparent`` of the decision on it, for the orders that follow from it."""

    def handle(self, entries: Sequence[Entry], handle: Callable[[Entry], list[AnyCommand]]) -> list[AnyCommand]:
        """Have every entry handled, and note how long each report took."""
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
        """The orders are published."""
        end_ns = time.time_ns()
        for report, begin_ns, handled_ns, commands in self._reports:
            self._spans.decision(report, self._began_ns, end_ns, commands=commands)
            self._spans.within_decision(report, "engine", begin_ns, handled_ns)
            self._spans.within_decision(report, "commit", self._handled_ns, end_ns)


def arrivals(job: int) -> Arrivals | None:
    """For a gateway; None without tracing."""
    return Arrivals(found, job) if (found := _spans()) is not None else None


def turn(job: int) -> Turn | None:
    """For a coordinator; None without tracing."""
    return Turn(found, job) if (found := _spans()) is not None else None


def sending(parent: str, job: int, rank: int) -> Callable[[], None] | None:
    """To be called once the orders that follow from the decision ``parent`` are sent; None without tracing."""
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
