"""Servers that an operator adds or drains: blocks follow, workers train on."""

import pytest

from controlplane.core.commands import (
    DrainServer,
    MoveBlocks,
    MoveJob,
    ReleaseSlot,
    RequestSlot,
    SetPlacement,
    StopProcess,
)
from controlplane.core.events import (
    Assignment,
    DrainRequested,
    ProcessDied,
    ServerRequested,
    SlotRefused,
    SlotsAssigned,
)
from controlplane.core.iterations import WARM_UP_REPORTS
from tests.core.story import Story, of
from tests.core.test_moving import SIZES, exchanges, hand_over, holders

WARM = WARM_UP_REPORTS + 1
"""Servers are looked at after iterations that are past the warm-up."""

MORE = ServerRequested(actor="ada")


def drain(index: int) -> DrainRequested:
    return DrainRequested(actor="ada", role="server", index=index)


@pytest.fixture
def running(story, monkeypatch):
    monkeypatch.setattr("tests.core.story.TENSOR_SIZES", SIZES)

    def tell(placement="round-robin", **changes) -> Story:
        chosen = {"batching": "uniform", "placement": placement}
        return story(**({"workers": 2, "servers": 2, "synchronization": chosen} | changes)).running()

    return tell


def go_on(told: Story, iterations: int = 1) -> None:
    for _ in range(iterations):
        iteration = told.engine._job.round.completed + 1
        for rank in told.engine._job.generation.roster:
            told.report(rank, iteration, exchanges=exchanges(told, {}))


def test_a_server_that_was_requested_gets_what_the_policy_gives_it(running):
    told = running()
    (asked,) = of(RequestSlot, told.see(MORE))
    assert (asked.role, asked.index, asked.reason) == ("server", 2, "another server was requested by ada")
    assert "a slot for s2 is already requested" in told.declined(MORE)
    told.see(SlotsAssigned(assignments=[Assignment(role="server", index=2, agent=3, slot=0)]))
    told.server_hello(2)
    go_on(told, WARM)
    (moved,) = told.given(MoveBlocks)
    assert moved.reason.startswith("another server was requested by ada; ")
    hand_over(told, moved)
    assert sorted(holders(told).values()) == [0, 0, 0, 1, 1, 1, 2, 2]
    go_on(told, 3)
    assert len(told.given(MoveBlocks)) == 1, "once"


def test_without_a_slot_the_operator_is_notified_and_may_ask_again_at_once(running):
    told = running()
    told.see(MORE)
    (moved,) = of(MoveJob, told.see(SlotRefused(role="server", index=2, reason="0 are free")))
    assert moved.reason == "no slot for another server: 0 are free; the job continues with 2"
    assert [c.index for c in of(RequestSlot, told.see(MORE))] == [2]


@pytest.mark.parametrize("placement", ["round-robin", {"name": "psld", "probe_every": 0, "epsilon": 0.0}])
def test_a_drained_server_hands_its_blocks_over_and_ends(running, placement):
    told = running(placement, servers=3)
    held = [index for index, server in holders(told).items() if server == 1]
    commands = told.see(drain(1))
    assert [c.index for c in of(DrainServer, commands)] == [1]
    (moved,) = of(MoveBlocks, commands)
    assert sorted(moved.moves) == held, "no other block moves"
    assert {source for source, _ in moved.moves.values()} == {1}
    assert told.given(StopProcess) == []
    hand_over(told, moved)
    assert 1 not in holders(told).values()
    go_on(told, WARM)
    assert [(c.role, c.index) for c in told.given(StopProcess)] == [("server", 1)]
    ended = told.see(ProcessDied(role="server", index=1, instance="s1.0.1", status=0))
    assert [c.index for c in of(ReleaseSlot, ended)] == [1]
    go_on(told, 5)
    assert told.given(SetPlacement)[-1].version == told.orders[0].placement_version


def test_a_drain_waits_for_the_change_that_is_under_way(running):
    told = running(servers=3)
    told.see(drain(1))
    told.see(drain(2))
    (first,) = told.given(MoveBlocks)
    hand_over(told, first)
    go_on(told, WARM)
    second = told.given(MoveBlocks)[-1]
    assert {to for _, to in second.moves.values()} == {0}
    hand_over(told, second)
    go_on(told, WARM)
    assert {c.index for c in told.given(StopProcess)} == {1, 2}
    assert [b.server for b in told.given(SetPlacement)[-1].blocks] == [0] * 8


def test_a_drained_server_that_dies_first_is_filled_and_drained_then(running):
    told = running(servers=2)
    told.see(drain(1))
    lost = [block for block, server in holders(told).items() if server == 1]
    told.kill_server(1)
    told.tick(after_ms=500)
    told.server_hello(1)
    for rank in range(2):
        told.copies(rank, (0, 0, lost))
    told.filled(1, lost)
    assert told.engine._job.servers[1].draining
    go_on(told, WARM)
    assert told.engine._job.placement.change is not None
    assert {block.server for block in told.engine._job.placement.change.blocks} == {0}


@pytest.mark.parametrize(
    ("changes", "event", "sentence"),
    [
        ({"servers": 1}, drain(0), "no other server could hold its blocks"),
        ({}, drain(7), "drain of s7 by ada, but it is not here; s0, s1 are"),
        ({"stop": {"iterations": 4}}, drain(0), "the job ends before iteration 4: blocks would not arrive in time"),
        (
            {"servers": 0, "communication": "all-reduce"},
            MORE,
            "job 7: another server by ada, but an all-reduce job has no servers: workers hold the parameters",
        ),
    ],
)
def test_what_cannot_be_is_declined_with_the_reason(running, changes, event, sentence):
    told = running(**changes)
    if changes.get("servers") != 0:
        go_on(told, WARM)
    assert sentence in told.declined(event)


def test_a_server_leaves_once(running):
    told = running()
    told.see(drain(1))
    assert told.declined(drain(1)) == "job 7: drain of s1 by ada, but it is already about to leave"
