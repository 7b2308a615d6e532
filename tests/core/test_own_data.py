"""Data of a worker's own: who joins gets some, and no share takes a sample twice in one iteration."""

from controlplane.core.commands import MoveJob, MoveProcess, RaiseFlag
from controlplane.core.events import ChangeRequested
from controlplane.protocol.spec import Choice

OWN = {"name": "softmax-regression", "dataset": "digits", "partition": "by-label"}


def test_worker_joins_where_there_are_as_many_splits_as_workers(story):
    told = story(workers=2, synchronization={"data": {"name": "rotation", "splits": 1}}).running()
    told.iterate(3, speeds={0: 1000.0, 1: 1000.0})
    told.kill(1)
    told.tick(after_ms=500)
    told.report(0, 3)
    told.hello(1)
    told.report(0, 4)
    assert told.engine.failure is None
    assert told.orders[1].share == 64
    assert sum(piece.stop - piece.start for piece in told.orders[1].pieces) == 64


def test_worker_for_whom_there_is_no_sample_does_not_join_and_the_job_continues(story):
    told = story(workers=3, batch_size=1, elastic={"minimum_workers": 2}, synchronization={"data": "rotation"})
    told.sample_count = 2
    told.starting()
    for index in range(2):
        told.server_hello(index)
    told.hello(0)
    told.hello(1)
    told.tick(after_ms=5_000)
    (refused,) = [c for c in told.hello(2) if isinstance(c, MoveProcess) and c.state == "stopped"]
    assert refused.reason == (
        "has no samples: rotation divides 2 samples among 2 workers already; change data to shared, or add data"
    )
    assert told.given(MoveJob)[-1].state == "running"


def test_change_to_splits_of_fewer_samples_than_workers_is_declined(story):
    told = story(workers=3, batch_size=1)
    told.sample_count = 2
    told.running()
    reason = told.declined(ChangeRequested(actor="ada", choices={"data": Choice(name="rotation")}))
    assert "2 samples cannot be divided among 3 workers: each needs at least one" in reason


def test_share_is_at_most_what_a_worker_has_of_its_own(story):
    told = story(workers=3, batch_size=30, workload=OWN, servers=1)
    told.own_samples = {0: 10, 1: 100, 2: 60}
    told.running()
    assert {rank: orders.share for rank, orders in told.orders.items()} == {0: 10, 1: 40, 2: 40}


def test_samples_that_repeat_within_an_iteration_are_reported(story):
    told = story(workers=2, batch_size=30, workload=OWN)
    told.own_samples = {0: 10, 1: 40}
    told.running()
    (flag,) = told.given(RaiseFlag)
    assert (flag.rank, flag.kind) == (0, "repeats")
    assert flag.reason == (
        "w0 takes 30 samples per iteration of its own 10: some repeat within an iteration, "
        "since all workers together have too few for 60; use a smaller batch_size or more data"
    )
