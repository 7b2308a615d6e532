"""Servers that come and go while a job runs: asked for, started, given blocks; left without them, ended."""

import pytest

from controlplane.core.commands import (
    IssueOrders,
    IssueServerOrders,
    MeasurePlacement,
    MoveBlocks,
    MoveJob,
    MoveProcess,
    ReleaseSlot,
    RequestSlot,
    RollBack,
    SetPlacement,
    StartProcess,
    StopProcess,
)
from controlplane.core.context import EventRefused
from controlplane.core.events import (
    Assignment,
    ChangeRequested,
    ProcessDied,
    ServerMessageReceived,
    SlotRefused,
    SlotsAssigned,
)
from controlplane.core.placing import ANSWER_MS, ASK_AGAIN_MS
from controlplane.protocol.messages import BlocksHanded, Exchanged
from controlplane.protocol.spec import Choice
from tests.core.story import Story, of
from tests.core.test_moving import SIZES, exchanges, hand_over, holders, iterate

SLOW = {1: 4.0, 2: 4.0, 3: 4.0}
"""Of 4 servers only the first is as fast as it was: fewer than half are superior."""


def placement(**parameters):
    chosen = {"name": "psld", "every": 3, "probe_every": 0, "epsilon": 0.0} | parameters
    return {"batching": "uniform", "placement": chosen}


@pytest.fixture
def running(story, monkeypatch):
    monkeypatch.setattr("tests.core.story.TENSOR_SIZES", SIZES)

    def tell(**parameters) -> Story:
        return story(workers=2, servers=4, synchronization=placement(**parameters)).running()

    return tell


def until(told: Story, kind, slow=None, *, iterations: int = 30, **report):
    """Iterate until a command of that kind is given; it."""
    before = len(told.given(kind))
    for _ in range(iterations):
        iteration = told.engine._job.round.completed + 1
        for rank in range(2):
            told.report(rank, iteration, exchanges=exchanges(told, SLOW if slow is None else slow), **report)
        change = told.engine._job.placement.change
        if change is not None and kind is not MoveBlocks:
            hand_over(told, told.given(MoveBlocks)[-1])
        if len(told.given(kind)) > before:
            return told.given(kind)[-1]
    raise AssertionError(f"no {kind.__name__}")


def slot_comes(told: Story, index: int = 4):
    assignment = Assignment(role="server", index=index, agent=3, slot=0)
    return told.see(SlotsAssigned(assignments=[assignment]))


def test_a_server_is_requested_when_fewer_than_half_are_superior(running):
    told = running()
    asked = until(told, RequestSlot)
    assert (asked.role, asked.index) == ("server", 4)
    assert "1 superior servers are fewer than 2: one more is requested" in asked.reason
    for _ in range(12):
        until(told, IssueOrders)
    assert len(told.given(RequestSlot)) == 1, "not twice"


def test_a_new_server_starts_sends_a_hello_and_gets_blocks(running):
    told = running(probe_every=2)
    until(told, RequestSlot)
    (started,) = of(StartProcess, slot_comes(told))
    assert (started.role, started.index, started.agent) == ("server", 4, 3)
    (greeted,) = of(IssueServerOrders, told.server_hello(4))
    assert (greeted.index, greeted.orders.blocks) == (4, [])
    for _ in range(20):
        iteration = told.engine._job.round.completed + 1
        for rank in range(2):
            asked = [Exchanged(server=4, bytes=4096, push_s=0.004, pull_s=0.004, is_probe=True)]
            probes = asked if told.orders[rank].probes else []
            told.report(rank, iteration, exchanges=exchanges(told, SLOW) + probes)
        if told.engine._job.placement.change is not None:
            hand_over(told, told.given(MoveBlocks)[-1])
    assert 4 in holders(told).values()
    assert told.orders[0].placement_version == told.given(SetPlacement)[-1].version


def test_without_a_slot_the_job_continues_and_the_operator_is_notified(running):
    told = running()
    until(told, RequestSlot)
    refused = SlotRefused(role="server", index=4, reason="machines online offer 4 server slots, of which 0 are free")
    (moved,) = of(MoveJob, told.see(refused))
    assert moved.reason == f"no slot for another server: {refused.reason}; the job continues with 4"
    for _ in range(8):
        iterate(told, told.engine._job.round.completed + 1, told.engine._job.round.completed + 1, SLOW)
    assert len(told.given(RequestSlot)) == 1
    told.now_ms += ASK_AGAIN_MS
    until(told, RequestSlot)
    with pytest.raises(EventRefused, match="a slot for server 9 is refused: no request waits for it"):
        told.see(SlotRefused(role="server", index=9, reason="none"))


def test_a_request_that_no_one_answers_is_made_again(running):
    told = running()
    until(told, RequestSlot)
    told.now_ms += ANSWER_MS
    assert until(told, RequestSlot).index == 4


def test_a_new_server_that_dies_before_it_holds_anything_costs_nothing(running):
    told = running()
    until(told, RequestSlot)
    slot_comes(told)
    commands = told.see(ProcessDied(role="server", index=4, instance="s4.0.1", status=1, detail="no memory"))
    assert [(each.role, each.index) for each in of(ReleaseSlot, commands)] == [("server", 4)]
    assert of(RollBack, commands) == []
    assert [move.state for move in of(MoveProcess, commands)] == ["lost"]
    iterate(told, told.engine._job.round.completed + 1, told.engine._job.round.completed + 3, SLOW)


def test_a_server_left_without_blocks_is_ended_and_its_slot_given_back(running):
    told = running(retire_after=4, scale_threshold=0.0)
    slow = {3: 1000.0}
    stopped = until(told, StopProcess, slow)
    assert (stopped.role, stopped.index) == ("server", 3)
    assert "it has held no blocks for long" in stopped.reason
    commands = told.see(ProcessDied(role="server", index=3, instance="s3.0.1", status=0))
    assert [move.state for move in of(MoveProcess, commands)] == ["stopped"]
    assert [each.index for each in of(ReleaseSlot, commands)] == [3]
    until(told, IssueOrders, slow)


def test_what_a_change_was_worth_is_measured_beside_what_was_predicted(running):
    told = running(scale_threshold=0.0)
    ordered = until(told, MoveBlocks, {3: 20.0})
    first = ordered.freeze_at
    hand_over(told, ordered)
    for rank, moving_s in ((0, 0.25), (1, 0.125)):
        told.report(rank, first - 1, exchanges=exchanges(told, {3: 20.0}), moving_s=moving_s)
    measured = until(told, MeasurePlacement, {3: 20.0})
    assert (measured.version, measured.paused_s) == (ordered.version, 0.25)
    assert measured.after_s < measured.before_s / 2
    assert measured.after_s == pytest.approx(ordered.predicted_s, rel=0.3)
    assert measured.before_s == pytest.approx(ordered.now_s, rel=0.3)


def test_the_cost_of_a_change_is_shown_although_the_next_change_precedes_its_effect(running):
    told = running(scale_threshold=0.0)
    ordered = until(told, MoveBlocks, {3: 20.0})
    hand_over(told, ordered)
    while len(told.engine._job.placement.trial.seconds) < 2:
        for rank in range(2):
            iteration = told.engine._job.round.completed + 1
            told.report(rank, iteration, exchanges=exchanges(told, {3: 20.0}), moving_s=0.25 if rank else 0.0)
    commands = told.see(ChangeRequested(actor="ada", choices={"placement": Choice(name="round-robin")}))
    (measured,) = of(MeasurePlacement, commands)
    assert (measured.version, measured.paused_s > 0.0) == (ordered.version, True)
    assert told.engine._job.placement.trial.version == of(MoveBlocks, commands)[0].version


def test_a_server_that_holds_little_is_probed_by_one_worker_in_turn(running):
    told = running(probe_every=2, scale_threshold=0.0)
    hand_over(told, until(told, MoveBlocks, {3: 1000.0}))
    probers = []
    for _ in range(8):
        commands = []
        iteration = told.engine._job.round.completed + 1
        for rank in range(2):
            commands += told.report(rank, iteration, exchanges=exchanges(told, {}))
        probing = [c for c in of(IssueOrders, commands) if c.orders.probes]
        assert len(probing) <= 1
        probers += [(c.rank, sorted(c.orders.probes), c.orders.probe_round) for c in probing]
    assert {servers[0] for _, servers, _ in probers} == {3}
    assert {rank for rank, _, _ in probers} == {0, 1}
    assert [number for _, _, number in probers] == sorted({number for _, _, number in probers})


def test_probes_find_a_server_that_has_recovered(running):
    told = running(probe_every=2, scale_threshold=0.0, forgetting=0.8)
    hand_over(told, until(told, MoveBlocks, {3: 100.0}))
    assert 3 not in holders(told).values()
    for _ in range(80):
        iteration = told.engine._job.round.completed + 1
        probes = [Exchanged(server=3, bytes=4096, push_s=0.004, pull_s=0.004, is_probe=True)]
        for rank in range(2):
            asked = probes if told.orders[rank].probes else []
            told.report(rank, iteration, exchanges=exchanges(told, {}) + asked)
        if told.engine._job.placement.change is not None:
            hand_over(told, told.given(MoveBlocks)[-1])
    assert 3 in holders(told).values()


def test_a_blocks_handed_message_of_a_released_server_is_ignored(running):
    told = running()
    message = BlocksHanded(number=2, placement=7, blocks=[0])
    assert told.see(ServerMessageReceived(index=0, instance="s0.0.1", message=message)) == []
