"""Workers that an operator leaves out: excluded at once, drained at a boundary, included again."""

import pytest

from controlplane.core.commands import (
    IssueServerOrders,
    LeaveOut,
    MoveProcess,
    RaiseFlag,
    ReleaseSlot,
    SetRoster,
    SetShares,
    StartProcess,
    StopProcess,
    TakeBack,
)
from controlplane.core.events import (
    Assignment,
    DrainRequested,
    ExclusionRequested,
    InclusionRequested,
    ProcessDied,
    SlotsAssigned,
)
from tests.core.motion import Motion
from tests.core.story import Story, of


def exclude(rank: int) -> ExclusionRequested:
    return ExclusionRequested(actor="ada", rank=rank)


def include(rank: int) -> InclusionRequested:
    return InclusionRequested(actor="bob", rank=rank)


def drain(rank: int) -> DrainRequested:
    return DrainRequested(actor="ada", role="worker", index=rank)


def end_of(told: Story, rank: int) -> list:
    return told.see(ProcessDied(role="worker", index=rank, instance=told.instance("w", rank), status=-15))


def test_an_excluded_worker_ends_at_once_and_the_others_share_its_samples(story):
    told = story().running()
    told.iterate(5, speeds=dict.fromkeys(range(4), 1000.0))
    commands = told.see(exclude(3))
    assert [(c.rank, c.iteration) for c in of(LeaveOut, commands)] == [(3, None)]
    assert [(c.role, c.index) for c in of(StopProcess, commands)] == [("worker", 3)]
    assert of(SetRoster, commands)[0].ranks == [0, 1, 2]
    assert of(SetShares, commands)[0].shares == {0: 86, 1: 85, 2: 85}
    (moved,) = of(MoveProcess, commands)
    assert (moved.state, moved.reason, moved.restart) == ("stopped", "was excluded by ada", None)
    assert of(RaiseFlag, commands) == [], "nobody straggles"


def test_an_excluded_worker_keeps_its_slot_and_is_not_started_again(story):
    told = story().running()
    told.see(exclude(3))
    assert end_of(told, 3) == []
    told.tick(after_ms=120_000)
    assert [c.index for c in told.given(StartProcess) if c.role == "worker"] == [0, 1, 2, 3]


def test_a_worker_that_waits_for_its_restart_can_be_excluded(story):
    told = story().running()
    told.kill(3)
    told.see(exclude(3))
    assert told.given(MoveProcess)[-1].restart is None
    told.tick(after_ms=120_000)
    assert [c.index for c in told.given(StartProcess) if c.role == "worker"] == [0, 1, 2, 3]


def test_an_included_worker_waits_for_its_slot_starts_and_counts_again(story):
    told = story().running()
    told.iterate(2, speeds=dict.fromkeys(range(4), 1000.0))
    told.see(exclude(3))
    commands = told.see(include(3))
    assert [c.rank for c in of(TakeBack, commands)] == [3]
    assert of(MoveProcess, commands)[0].restart.wants_slot
    told.see(SlotsAssigned(assignments=[Assignment(role="worker", index=3, agent=1, slot=3)]))
    told.hello(3)
    joined = told.engine._job.requests.join_at
    told.iterate(joined - 2, speeds=dict.fromkeys(range(3), 1000.0), start=2)
    assert told.given(SetRoster)[-1].ranks == [0, 1, 2, 3]


def test_a_worker_whose_restarts_are_used_up_can_be_included(story):
    told = story(elastic={"restarts": 0}).running()
    told.kill(3)
    told.see(include(3))
    told.see(SlotsAssigned(assignments=[Assignment(role="worker", index=3, agent=1, slot=3)]))
    assert told.given(StartProcess)[-1].instance == "w3.0.2"


def test_a_drained_worker_leaves_between_two_iterations_and_gives_its_slot_back(story):
    told = story().running()
    told.iterate(2, speeds=dict.fromkeys(range(4), 1000.0))
    (left,) = of(LeaveOut, told.see(drain(3)))
    assert left.reason == f"w3 was drained by ada: it leaves before iteration {left.iteration}"
    assert told.given(StopProcess) == []
    told.iterate(left.iteration - 3, speeds=dict.fromkeys(range(4), 1000.0), start=2)
    assert told.given(StopProcess) == []
    told.iterate(1, speeds=dict.fromkeys(range(4), 1000.0), start=left.iteration - 1)
    roster = told.given(SetRoster)[-1]
    assert (roster.ranks, roster.first_iteration) == ([0, 1, 2], left.iteration)
    assert [m.rank for m in told.given(IssueServerOrders)[-1].orders.members] == [0, 1, 2]
    assert told.given(ReleaseSlot) == []
    assert [(c.role, c.index) for c in of(ReleaseSlot, end_of(told, 3))] == [("worker", 3)]


def test_a_drain_can_be_taken_back_before_it_has_happened(story):
    told = story().running()
    told.iterate(2, speeds=dict.fromkeys(range(4), 1000.0))
    told.see(drain(3))
    (back,) = told.see(include(3))
    assert back.reason == "w3 stays, by bob"
    told.iterate(60, speeds=dict.fromkeys(range(4), 1000.0), start=2)
    assert len(told.given(SetRoster)) == 1


@pytest.mark.parametrize("barrier", ["bsp", "asp", {"name": "ssp", "staleness": 2}, "backup"])
def test_whatever_the_barrier_the_others_train_on_to_the_end(barrier):
    told = Motion(
        [1000.0, 900.0, 500.0, 250.0],
        synchronization={"batching": {"name": "uniform"}, "barrier": barrier},
        stop={"iterations": 60},
    )
    told.at(400, lambda: told.tell(drain(2)))
    told.at(900, lambda: told.tell(exclude(3)))
    told.run()
    assert told.state == "succeeded"
    assert told.story.given(SetRoster)[-1].ranks == [0, 1]
    assert told.engine._job.requests.left_out.keys() == {2, 3}


def test_no_sample_of_a_drained_worker_is_lost():
    told = Motion([1000.0, 1000.0, 500.0], synchronization={"batching": {"name": "uniform"}}, stop={"iterations": 80})
    told.at(700, lambda: told.tell(drain(2)))
    told.run()
    assert told.story.given(SetRoster)[-1].ranks == [0, 1]
    assert {sum(samples.values()) for samples in told.closed.values()} == {192}


@pytest.mark.parametrize(
    ("changes", "event", "sentence"),
    [
        ({}, exclude(9), "exclusion of w9 by ada, but it has only w0 to w3"),
        ({}, include(1), "inclusion of w1 by bob, but it already takes part"),
        ({"elastic": {"minimum_workers": 4}}, exclude(1), "3 workers would be left, and at least 4 are needed"),
        ({"elastic": {"minimum_workers": 4}}, drain(1), "3 workers would be left, and at least 4 are needed"),
        ({"limits": {"maximum": 70}}, exclude(1), "3 that are left could not share the batch within limits of 1 to 70"),
        ({"stop": {"iterations": 3}}, drain(1), "but the job ends before iteration 3, which is sooner than it could"),
    ],
)
def test_what_cannot_be_is_declined_with_the_reason(story, changes, event, sentence):
    told = story(**changes).running()
    told.iterate(1, speeds=dict.fromkeys(range(4), 1000.0))
    before = told.engine.snapshot()
    assert sentence in told.declined(event)
    assert told.engine.snapshot() == before.replace(told.entries[-2].id.encode(), told.entries[-1].id.encode())


def test_a_job_that_does_not_run_leaves_no_one_out(story):
    assert "the job is starting: it must be running or paused" in story().starting().declined(exclude(1))


def test_the_last_worker_stays(story):
    told = story(workers=2).running()
    told.see(exclude(0))
    assert told.declined(exclude(0)) == "job 7: exclusion of w0 by ada, but it was excluded by ada already"
    assert "no workers would be left, and at least 1 is needed" in told.declined(exclude(1))
