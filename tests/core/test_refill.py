"""A server is lost, and its blocks begin again with the copies that workers had pulled."""

import pytest

from controlplane.core.commands import IssuePlacement, IssueServerOrders, MoveJob, RefillBlocks, RollBack, StartProcess
from controlplane.core.events import SlotsAssigned
from controlplane.core.restarts import slot_of
from tests.core.story import Story, of

ALL = dict.fromkeys(range(4), 1000.0)
ADAM = {"name": "adam", "lr": 0.01}
LOST = [1]
"""The block of s1."""


@pytest.fixture
def lost(story):
    """A job of plain SGD, or as ``changes`` have it, whose last server dies after 7 iterations."""

    def tell(**changes) -> Story:
        told = story(**changes).running()
        told.iterate(7, speeds=ALL)
        told.kill_server(told.spec.servers - 1)
        return told

    return tell


def filled(told: Story) -> list:
    """All workers have version 7, the new server says hello and is given it; what that led to."""
    for rank in range(4):
        told.copies(rank, (7, 7, LOST))
    told.tick(after_ms=500)
    told.server_hello(1)
    return told.filled(1, LOST)


def test_workers_are_requested_for_copies_and_the_server_starts_again(lost):
    told = lost()
    moved = told.given(MoveJob)[-1]
    assert (moved.state, moved.awaited) == ("paused", "its servers: s1")
    assert {(orders.refill, tuple(orders.lost), orders.hold) for orders in told.orders.values()} == {(1, (1,), True)}
    assert [c.instance for c in of(StartProcess, told.tick(after_ms=500))] == ["s1.0.2"]


def test_the_newest_copy_goes_to_the_new_server_once_all_workers_have_answered(lost):
    told = lost()
    told.tick(after_ms=500)
    told.server_hello(1)
    for rank in range(3):
        assert told.copies(rank, (7 if rank == 2 else 6, 6, LOST)) == []
    commands = told.copies(3, (7, 7, LOST))
    assert {rank: orders.fills for rank, orders in told.orders.items()} == {0: [], 1: [], 2: [], 3: LOST}
    awaits = {c.index: c.orders.awaits for c in of(IssueServerOrders, commands)}
    assert awaits == {0: [], 1: LOST}
    placed = of(IssuePlacement, commands)
    assert {(c.rank, tuple(c.refills.items()), c.again) for c in placed} == {(r, ((1, 1),), True) for r in range(4)}
    assert placed[0].servers[1][0] == "s1.0.2"


def test_job_continues_and_nothing_is_done_again(lost):
    told = lost()
    commands = filled(told)
    (refill,) = of(RefillBlocks, commands)
    assert (refill.servers, refill.blocks, refill.version, refill.ranks) == ([1], 1, 7, [0])
    assert refill.reason == "s1 was ended by signal 9; 1 block restarted from the values that w0 had pulled"
    assert [m.state for m in of(MoveJob, commands)] == ["running"]
    assert told.given(RollBack) == []
    told.iterate(2, speeds=ALL, start=7)
    assert told.engine._job.round.completed == 8
    assert {(orders.refill, orders.hold) for orders in told.orders.values()} == {(0, False)}


def test_what_the_optimizer_remembered_is_lost_and_reported(lost):
    (refill,) = of(RefillBlocks, filled(lost(optimizer=ADAM)))
    assert refill.reason.endswith("; what adam stored about them is lost")


def test_asynchronous_job_reports_that_updates_are_lost_and_takes_the_copy_of_most_steps(lost):
    told = lost(synchronization={"barrier": {"name": "asp"}})
    told.tick(after_ms=500)
    told.server_hello(1)
    for rank in range(4):
        commands = told.copies(rank, (7 - rank, 20 + rank, LOST))
    assert not of(IssuePlacement, commands)[0].again
    assert {rank for rank, orders in told.orders.items() if orders.fills} == {3}
    (refill,) = of(RefillBlocks, told.filled(1, LOST))
    assert refill.reason.endswith("updates that no worker had pulled are lost")


def test_worker_that_dies_before_it_gave_its_copy_is_replaced_by_another(lost):
    told = lost()
    told.tick(after_ms=500)
    told.server_hello(1)
    for rank in range(4):
        told.copies(rank, (7 if rank == 2 else 6, 6, LOST))
    told.kill(2)
    assert {rank: told.orders[rank].fills for rank in (0, 1, 3)} == {0: LOST, 1: [], 3: []}
    (refill,) = of(RefillBlocks, told.filled(1, LOST))
    assert refill.ranks == [0]


def test_worker_that_dies_before_it_reported_what_it_has_is_not_waited_for(lost):
    told = lost()
    told.tick(after_ms=500)
    told.server_hello(1)
    for rank in range(3):
        told.copies(rank, (7, 7, LOST))
    told.kill(3)
    assert told.orders[0].fills == LOST


def test_server_that_dies_again_is_filled_anew(lost):
    told = lost()
    told.tick(after_ms=500)
    told.server_hello(1)
    told.kill_server(1)
    assert {orders.refill for orders in told.orders.values()} == {2}
    told.tick(after_ms=1_000)
    told.server_hello(1)
    for rank in range(4):
        told.copies(rank, (7, 7, LOST))
    (refill,) = of(RefillBlocks, told.filled(1, LOST))
    assert told.given(RefillBlocks) == [refill]


def test_both_servers_may_be_lost(lost):
    told = lost()
    told.kill_server(0)
    told.tick(after_ms=500)
    for index in (0, 1):
        told.server_hello(index)
    for rank in range(4):
        told.copies(rank, (7, 7, [0, 1]))
    assert told.filled(0, [0]) == []
    (refill,) = of(RefillBlocks, told.filled(1, [1]))
    assert (refill.servers, refill.blocks) == ([0, 1], 2)


def test_without_any_whole_copy_the_job_ends_with_what_it_lacks(lost):
    told = lost()
    told.tick(after_ms=500)
    told.server_hello(1)
    for rank in range(4):
        commands = told.copies(rank)
    moved = of(MoveJob, commands)[-1]
    assert moved.state == "failed"
    assert moved.reason == (
        "s1 was ended by signal 9; no worker has a complete copy of 1 of its blocks; its parameters are lost: there "
        "is no "
        "checkpoint, and the spec does not allow a restart; next time, set checkpoint: {every: N}, or "
        "elastic: {from_scratch: true}"
    )


def test_without_any_whole_copy_the_job_may_be_allowed_to_begin_anew(lost):
    told = lost(elastic={"from_scratch": True})
    told.tick(after_ms=500)
    told.server_hello(1)
    for rank in range(4):
        commands = told.copies(rank)
    assert of(RollBack, commands)[0].to_iteration == 0


def test_before_anything_was_done_the_blocks_begin_as_at_first(story):
    told = story().running()
    told.kill_server(1)
    told.tick(after_ms=500)
    told.server_hello(1)
    for rank in range(4):
        commands = told.copies(rank)
    assert [c.orders.awaits for c in of(IssueServerOrders, commands)][-1] == []
    (refill,) = of(RefillBlocks, commands)
    assert refill.reason == "s1 was ended by signal 9; 1 block restarted from their initial values"


def test_server_without_a_machine_waits_for_a_slot_and_is_filled_there(story):
    told = story().running()
    told.iterate(7, speeds=ALL)
    told.tick(after_ms=4_500, away=(2,))
    assert told.given(MoveJob)[-1].awaited == "its servers: s0, s1"
    for server in sorted(told.engine._job.servers.values(), key=lambda each: each.index):
        told.see(SlotsAssigned(assignments=[slot_of(server)]))
        told.server_hello(server.index)
    for rank in range(4):
        told.copies(rank, (7, 7, [0, 1]))
    told.filled(0, [0])
    assert [c.blocks for c in of(RefillBlocks, told.filled(1, [1]))] == [2]


def test_a_worker_that_has_finished_is_not_waited_for(story):
    told = story(stop={"iterations": 7}).running()
    told.iterate(7, speeds=ALL)
    for rank in (1, 2, 3):
        told.finish(rank, 7)
    told.kill_server(1)
    told.tick(after_ms=500)
    told.server_hello(1)
    commands = told.copies(0, (6, 6, LOST))
    assert [member.rank for member in of(IssueServerOrders, commands)[-1].orders.members] == [0]
    assert of(RefillBlocks, told.filled(1, LOST))
    assert of(MoveJob, told.finish(0, 7, model_saved=True))[-1].state == "succeeded"


def test_server_and_workers_that_end_together_take_the_job_back_to_the_beginning(lost):
    told = lost(elastic={"restarts": 3, "from_scratch": True}, servers=1)
    for rank in range(4):
        told.kill(rank)
    back = told.given(RollBack)[-1]
    assert back.to_iteration == 0
    assert back.reason.startswith("s0 was ended by signal 9; all workers with a copy")
    told.tick(after_ms=1000)
    told.server_hello(0)
    for rank in range(4):
        told.hello(rank)
    assert told.given(MoveJob)[-1].state == "running"


def test_worker_that_waits_to_join_does_not_join_a_server_that_is_lost(story):
    told = story(servers=1, workers=2, elastic={"restarts": 3, "from_scratch": True}).running()
    told.iterate(3, speeds={0: 1000.0, 1: 1000.0})
    told.kill(1)
    told.tick(after_ms=500)
    told.hello(1)
    told.kill_server(0)
    told.kill(0)
    assert told.engine.failure is None
    assert told.given(RollBack)[-1].to_iteration == 0


def test_without_a_way_back_the_job_fails_and_reports_whose_parameters_are_lost(story):
    told = story(servers=1, workers=2, elastic={"restarts": 3}).running()
    told.iterate(3, speeds={0: 1000.0, 1: 1000.0})
    told.kill_server(0)
    told.kill(0)
    told.kill(1)
    end = told.given(MoveJob)[-1]
    assert end.state == "failed"
    assert end.reason.startswith("s0 was ended by signal 9; all workers with a copy")
    assert "its parameters are lost" in end.reason
