"""How long reports wait for orders, as the two streams of a job have it."""

import msgspec
import pytest

from controlplane.core.commands import CARRIERS, DELIVERED, DeliveredOrders, IssueOrders, MoveJob
from controlplane.core.states import JobState
from controlplane.jobs.projections import Answer
from controlplane.runtime.batches import latencies
from controlplane.runtime.executor import decode_commands, decode_decisions
from tests.runtime.support import orders_numbered


def orders(cause: str, rank: int) -> DeliveredOrders:
    return DeliveredOrders(cause=cause, reason=f"orders of w{rank}")


def test_each_entry_counts_once_and_only_with_orders() -> None:
    moved = MoveJob(cause="1000-1", reason="", state=JobState.RUNNING)
    first = Answer(incarnation=0, sequence=1, commands=[orders("1000-0", 0), orders("1000-0", 1), moved])
    second = Answer(incarnation=0, sequence=4, commands=[orders("1500-0", 0), orders("1490-3", 1)])
    entries = [(b"1004-0", {}), (b"1520-0", {})]
    assert sorted(latencies(entries, [first, second])) == pytest.approx([0.004, 0.02, 0.03])


def test_a_clock_that_went_back_makes_no_negative_latency() -> None:
    assert [*latencies([(b"990-0", {})], [Answer(incarnation=0, sequence=1, commands=[orders("1000-0", 0)])])] == [0.0]


def test_history_reads_every_decision_whole_and_of_deliveries_only_what_caused_them() -> None:
    moved = MoveJob(cause="1000-1", reason="all are ready", state=JobState.RUNNING)
    sent = IssueOrders(cause="1000-0", reason="go on", rank=3, instance="w3.0.1", orders=orders_numbered(7))
    payload = msgspec.msgpack.encode([moved, sent])
    assert decode_commands(payload) == [moved, sent]
    assert decode_decisions(payload) == [moved, DeliveredOrders(cause="1000-0", reason="go on")]


def test_each_command_that_delivers_has_a_short_form_of_the_same_name() -> None:
    tags = [[kind.__struct_config__.tag for kind in kinds] for kinds in (CARRIERS, DELIVERED)]
    assert tags[0] == tags[1]
