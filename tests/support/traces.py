"""A receiver of OTLP over HTTP on loopback, and the spans that it was sent."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass
class Receiver:
    """What came, in order."""

    url: str = ""
    spans: list[Span] = field(default_factory=list)
    services: set[str] = field(default_factory=set)
    paths: set[str] = field(default_factory=set)
    processes: set[int] = field(default_factory=set)

    def take(self, path: str, body: bytes) -> None:
        """One export."""
        self.paths.add(path)
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            about = {each.key: each.value for each in group.resource.attributes}
            self.services.add(about["service.name"].string_value)
            self.processes.add(about["process.pid"].int_value)
            for scope in group.scope_spans:
                self.spans += scope.spans

    def traces(self) -> dict[bytes, list[Span]]:
        """By trace id."""
        found: dict[bytes, list[Span]] = {}
        for span in list(self.spans):
            found.setdefault(span.trace_id, []).append(span)
        return found


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Run one."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.take(self.path, self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_port}"
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield receiver
        finally:
            server.shutdown()
