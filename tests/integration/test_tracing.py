"""A control plane that is told of an OTLP receiver sends it a trace of each report."""

from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from controlplane.runtime.embedded.redis_server import redis_binary
from tests.conftest import INSTALL_REDIS
from tests.support.stack import running_stack
from tests.support.traces import Receiver, receiving
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


def whole(receiver: Receiver) -> list[dict[str, Span]]:
    """Traces that have a part at each service, by name; orders only where the report was one that led to some."""
    found = [{span.name: span for span in spans} for spans in receiver.traces().values()]
    return [each for each in found if each.keys() >= {"report", "decision", "engine", "commit"}]


def test_a_job_that_trains_is_traced_from_report_to_orders(tmp_path: Path) -> None:
    if redis_binary() is None:
        pytest.skip(INSTALL_REDIS)
    with receiving() as receiver:
        settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_BSP_SCHEDULE_DELAY": "200"}
        with running_stack(tmp_path, settings) as stack:
            job = stack.submit(stop={"iterations": 30})["id"]
            stack.await_job(job, "succeeded")
            eventually(lambda: len(whole(receiver)) == 4 * 30, what="a trace of every report", seconds=20)
    assert (receiver.paths, receiver.services) == ({"/v1/traces"}, {"paceline"})
    assert len(receiver.processes) == 2  # web and decisions
    for parts in whole(receiver):
        report, decision = parts["report"], parts["decision"]
        assert not report.parent_span_id
        assert decision.parent_span_id == report.span_id
        below = parts.keys() - {"report", "decision"}
        assert {parts[name].parent_span_id for name in below} == {decision.span_id}
        about = {each.key: each.value for each in decision.attributes}
        assert about["paceline.job"].int_value == job
        begun = [parts[name].start_time_unix_nano for name in ("report", "decision", "engine", "commit")]
        assert begun == sorted(begun)
    led = [parts for parts in whole(receiver) if "orders" in parts]
    assert led
    for parts in led:
        assert parts["orders"].end_time_unix_nano >= parts["engine"].end_time_unix_nano
