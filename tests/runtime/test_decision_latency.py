"""How long reports wait for orders, as the two streams of a job have it."""

import pytest

from controlplane.core.commands import IssueOrders, MoveJob
from controlplane.core.states import JobState
from controlplane.jobs.projections import Answer
from controlplane.runtime.batches import latencies
from tests.runtime.support import orders_numbered


def orders(cause: str, rank: int) -> IssueOrders:
    return IssueOrders(cause=cause, reason="", rank=rank, instance=f"w{rank}", orders=orders_numbered(1))


def test_each_entry_counts_once_and_only_with_orders() -> None:
    moved = MoveJob(cause="1000-1", reason="", state=JobState.RUNNING)
    first = Answer(incarnation=0, sequence=1, commands=[orders("1000-0", 0), orders("1000-0", 1), moved])
    second = Answer(incarnation=0, sequence=4, commands=[orders("1500-0", 0), orders("1490-3", 1)])
    entries = [(b"1004-0", {}), (b"1520-0", {})]
    assert sorted(latencies(entries, [first, second])) == pytest.approx([0.004, 0.02, 0.03])


def test_a_clock_that_went_back_makes_no_negative_latency() -> None:
    assert [*latencies([(b"990-0", {})], [Answer(incarnation=0, sequence=1, commands=[orders("1000-0", 0)])])] == [0.0]
