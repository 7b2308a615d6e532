"""OpenTelemetry spans. Imported only if an OTLP endpoint is configured (``tracing``)."""

import atexit
import os
import socket
import threading
import time
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags, set_span_in_context

from controlplane.protocol import RELEASE

if TYPE_CHECKING:
    from controlplane.runtime.tracing import Report

SERVICE: Final = "paceline"
"""The default service name."""

LAST_S: Final = 2.0


class Spans:
    """Exports finished spans. The trace id decides whether a trace is sampled, so all processes agree."""

    def __init__(self, exporter: SpanExporter, *, traced: float) -> None:
        self._ids = _Ids()
        about: dict[str, str | int] = {
            "host.name": socket.gethostname(),
            "process.pid": os.getpid(),
            "service.version": RELEASE,
        }
        if not os.environ.get("OTEL_SERVICE_NAME"):
            about[SERVICE_NAME] = SERVICE
        self.provider = TracerProvider(
            sampler=TraceIdRatioBased(traced),
            resource=Resource.create({**about}),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        self.provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self.provider.get_tracer("controlplane", RELEASE)
        self._exporter, self._closing = exporter, threading.Event()
        threading.Thread(target=self._give_up, daemon=True).start()  # none can be started while a process ends
        atexit.register(self.close)

    def close(self) -> None:
        """Send pending spans, for at most ``LAST_S``, so that an unreachable collector delays no exit."""
        self._closing.set()
        self.provider.shutdown()
        atexit.unregister(self.close)

    def _give_up(self) -> None:
        self._closing.wait()
        time.sleep(LAST_S)
        self._exporter.shutdown()

    def report(self, report: "Report", begin_ns: int, end_ns: int) -> None:
        """The root span of a report's trace: from its arrival at a gateway until it was in the log."""
        self._ids.next_trace, self._ids.next_span = _trace(report), _span(report, "report")
        self._add("report", Context(), SpanKind.SERVER, _about(report), begin_ns, end_ns)

    def decision(self, report: "Report", begin_ns: int, end_ns: int, *, commands: int) -> None:
        """The span from a coordinator's read of a report until its effects were published."""
        self._ids.next_span = _span(report, "decision")
        about = _about(report) | {"paceline.commands": commands}
        self._add("decision", _below(report, "report"), SpanKind.CONSUMER, about, begin_ns, end_ns)

    def within_decision(self, report: "Report", name: str, begin_ns: int, end_ns: int) -> None:
        """A child span of a decision."""
        self._add(name, _below(report, "decision"), SpanKind.INTERNAL, {}, begin_ns, end_ns)

    def parent(self, report: "Report") -> str:
        """The span of the decision on a report, in the format of the header ``traceparent``."""
        return f"00-{_trace(report):032x}-{_span(report, 'decision'):016x}-01"

    def orders(self, parent: str, job: int, rank: int, begin_ns: int, end_ns: int) -> None:
        """The span from the arrival of orders at a gateway until they were sent to their worker."""
        _, trace, span, _ = parent.split("-")
        about: dict[str, str | int] = {"paceline.job": job, "paceline.worker": f"w{rank}"}
        self._add("orders", _context(int(trace, 16), int(span, 16)), SpanKind.PRODUCER, about, begin_ns, end_ns)

    def _add(
        self,
        name: str,
        context: Context,
        kind: SpanKind,
        attributes: dict[str, str | int],
        begin_ns: int,
        end_ns: int,
    ) -> None:
        span = self._tracer.start_span(name, context, kind, attributes, start_time=begin_ns)
        span.end(end_time=max(begin_ns, end_ns))


def otlp_exporter() -> SpanExporter:
    """The exporter that OpenTelemetry's variables configure: endpoint, headers, timeout, certificate."""
    return OTLPSpanExporter()


class _Ids(RandomIdGenerator, threading.local):
    """Id generator that returns a preset id once per thread, otherwise random ids."""

    next_trace = 0
    next_span = 0

    def generate_trace_id(self) -> int:
        found, self.next_trace = self.next_trace, 0
        return found or super().generate_trace_id()

    def generate_span_id(self) -> int:
        found, self.next_span = self.next_span, 0
        return found or super().generate_span_id()


def _about(report: "Report") -> dict[str, str | int]:
    return {
        "paceline.job": report.job,
        "paceline.worker": f"w{report.rank}",
        "paceline.instance": report.instance,
        "paceline.iteration": report.iteration,
    }


def _below(report: "Report", name: str) -> Context:
    return _context(_trace(report), _span(report, name))


def _context(trace: int, span: int) -> Context:
    above = SpanContext(trace, span, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    return set_span_in_context(NonRecordingSpan(above), Context())


def _trace(report: "Report") -> int:
    return _digest(16, report)


def _span(report: "Report", name: str) -> int:
    return _digest(8, report, name)


def _digest(size: int, report: "Report", name: str = "") -> int:
    text = f"{report.job} {report.instance} {report.number} {name}"
    return int.from_bytes(blake2b(text.encode(), digest_size=size).digest())
