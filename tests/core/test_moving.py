"""Blocks of a running job get to other servers: ordered, handed over, committed; or nothing has happened."""

import pytest

from controlplane.core.commands import (
    AbandonMove,
    CloseFlag,
    IssueOrders,
    IssuePlacement,
    IssueServerOrders,
    MoveBlocks,
    RaiseFlag,
    SetPlacement,
)
from controlplane.core.engine import Engine
from controlplane.core.events import ChangeRequested, ProcessDied, ServerMessageReceived
from controlplane.core.iterations import WARM_UP_REPORTS
from controlplane.core.placing import MOVE_ARROWS, MoveState
from controlplane.policies.registry import resolve
from controlplane.protocol.messages import BlocksHanded, Exchanged
from controlplane.protocol.spec import Choice
from tests.core.story import Story, of

SIZES = [4096] * 8
SPEED = 1e6
"""Bytes per second of a usual server."""


def synchronization(**placement):
    return {"batching": "uniform", "placement": {"name": "psld-lpt", "every": 3, "probe_every": 0} | placement}


@pytest.fixture
def running(story, monkeypatch):
    """A job of 2 workers and 3 servers with 8 blocks of 16 KiB."""
    monkeypatch.setattr("tests.core.story.TENSOR_SIZES", SIZES)

    def tell(**changes) -> Story:
        return story(**{"workers": 2, "servers": 3, "synchronization": synchronization()} | changes).running()

    return tell


def holders(told: Story) -> dict[int, int]:
    return {block.index: block.server for block in told.given(SetPlacement)[-1].blocks}


def exchanges(told: Story, slow: dict[int, float]) -> list[Exchanged]:
    """As fast as servers are; ``slow`` says how many times slower some of them are."""
    held: dict[int, int] = {}
    for block in told.given(SetPlacement)[-1].blocks:
        held[block.server] = held.get(block.server, 0) + (block.stop - block.start) * 4
    return [
        Exchanged(server=s, bytes=size, push_s=size * slow.get(s, 1.0) / SPEED, pull_s=size * slow.get(s, 1.0) / SPEED)
        for s, size in sorted(held.items())
    ]


def iterate(told: Story, first: int, last: int, slow: dict[int, float]) -> None:
    for iteration in range(first, last + 1):
        for rank in range(told.spec.workers):
            told.report(rank, iteration, exchanges=exchanges(told, slow))


def until_moving(told: Story) -> MoveBlocks:
    """One server is ten times slower, until blocks are ordered to leave it."""
    for iteration in range(20):
        iterate(told, iteration, iteration, {1: 10.0})
        if told.given(MoveBlocks):
            return told.given(MoveBlocks)[-1]
    raise AssertionError("nothing was ordered to move")


def say(told: Story, index: int, **fields):
    key = f"s{index}"
    told.numbers[key] = told.numbers.get(key, 1) + 1
    message = BlocksHanded(number=told.numbers[key], **fields)
    return told.see(ServerMessageReceived(index=index, instance=f"s{index}.0.1", message=message))


def hand_over(told: Story, ordered: MoveBlocks) -> None:
    for source in sorted({source for source, _ in ordered.moves.values()}):
        blocks = [index for index, (held, _) in ordered.moves.items() if held == source]
        say(told, source, placement=ordered.version, blocks=blocks, seconds=0.25)


def last_orders(commands) -> dict[int, IssueServerOrders]:
    return {command.index: command for command in of(IssueServerOrders, commands)}


def test_blocks_are_ordered_to_leave_a_slow_server_between_two_versions(running):
    told = running()
    before = holders(told)
    ordered = until_moving(told)
    assert {source for source, _ in ordered.moves.values()} == {1}
    assert ordered.freeze_at == told.engine._job.round.completed + 2
    orders = last_orders(told.commands)[1]
    assert orders.orders.next_placement == ordered.version == 2
    assert orders.orders.sends == {index: to for index, (_, to) in ordered.moves.items()}
    assert orders.receivers == {to: (f"s{to}.0.1", "127.0.0.1", 7000 + to) for to in set(orders.orders.sends.values())}
    assert ordered.predicted_s < ordered.now_s / 2
    assert holders(told) == before


def test_the_placement_holds_only_when_every_block_was_acknowledged(running):
    told = running()
    ordered = until_moving(told)
    blocks = sorted(ordered.moves)
    assert of(SetPlacement, say(told, 1, placement=2, blocks=blocks[:1])) == []
    assert of(SetPlacement, say(told, 0, placement=2, blocks=blocks[1:])) == [], "not its blocks"
    commands = say(told, 1, placement=2, blocks=blocks[1:])
    (committed,) = of(SetPlacement, commands)
    assert (committed.version, committed.policy) == (2, "psld-lpt")
    assert all(holders(told)[index] == to for index, (_, to) in ordered.moves.items())
    held = {index: [b.index for b in c.orders.blocks] for index, c in last_orders(commands).items()}
    assert sorted(index for blocks in held.values() for index in blocks) == list(range(8))
    assert {c.orders.next_placement for c in of(IssueServerOrders, commands)} == {0}
    assert {c.version for c in of(IssuePlacement, commands)} == {2}
    assert {c.orders.placement_version for c in of(IssueOrders, commands)} == {2}


def test_once_moved_nothing_moves_again_while_servers_stay_as_they_are(running):
    told = running()
    hand_over(told, until_moving(told))
    done = told.engine._job.round.completed
    iterate(told, done + 1, done + 30, {1: 10.0})
    assert len(told.given(MoveBlocks)) == 1


def test_a_failed_hand_over_leaves_everything_where_it_is(running):
    told = running()
    before = holders(told)
    ordered = until_moving(told)
    commands = say(told, 1, placement=ordered.version, blocks=[], failure="server 2 cannot be reached")
    (abandoned,) = of(AbandonMove, commands)
    assert "s1 could not hand its blocks over: server 2 cannot be reached" in abandoned.reason
    assert {c.orders.next_placement for c in of(IssueServerOrders, commands)} == {0}
    assert holders(told) == before
    assert say(told, 1, placement=ordered.version, blocks=sorted(ordered.moves)) == [], "too late"


def test_the_next_change_has_a_version_of_its_own(running):
    told = running()
    first = until_moving(told)
    say(told, 1, placement=first.version, blocks=[], failure="no room")
    done = told.engine._job.round.completed
    iterate(told, done + 1, done + 6, {1: 10.0})
    second = told.given(MoveBlocks)[-1]
    assert (first.version, second.version) == (2, 3)
    assert say(told, 1, placement=first.version, blocks=sorted(first.moves)) == []
    hand_over(told, second)
    assert told.given(SetPlacement)[-1].version == 3


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_dead_server_ends_the_change_before_its_commit(running, index):
    told = running()
    until_moving(told)
    commands = told.see(ProcessDied(role="server", index=index, instance=f"s{index}.0.1", status=-9))
    assert f"s{index} is lost" in of(AbandonMove, commands)[0].reason


def test_a_worker_that_leaves_does_not_end_the_change(running):
    told = running(workers=3)
    ordered = until_moving(told)
    commands = told.kill(2)
    assert last_orders(commands)[1].orders.next_placement == ordered.version
    hand_over(told, ordered)
    assert told.given(SetPlacement)[-1].version == ordered.version


def test_a_change_under_way_is_in_the_snapshot(running):
    told = running()
    ordered = until_moving(told)
    twin = Engine.restore(told.engine.snapshot(), resolve=resolve)
    blocks = sorted(ordered.moves)
    message = BlocksHanded(number=2, placement=2, blocks=blocks)
    commands = told.see(ServerMessageReceived(index=1, instance="s1.0.1", message=message))
    assert twin.handle(told.entries[-1]) == commands


def test_asynchronous_jobs_freeze_at_once(running):
    told = running(synchronization=synchronization() | {"barrier": "asp"})
    assert until_moving(told).freeze_at == 0


def test_another_static_placement_moves_blocks_at_once(running):
    told = running()
    ordered = until_moving(told)
    hand_over(told, ordered)
    commands = told.see(ChangeRequested(actor="ada", choices={"placement": Choice(name="round-robin")}))
    (back,) = of(MoveBlocks, commands)
    assert "placement becomes round-robin, requested by ada" in back.reason
    assert {to for _, to in back.moves.values()} == {1}


def test_a_placement_that_would_cut_blocks_anew_is_refused(running):
    told = running()
    mxnet = Choice(name="mxnet", parameters={"large": 100})
    reason = told.declined(ChangeRequested(actor="ada", choices={"placement": mxnet}))
    assert "mxnet would cut the parameters into 24 blocks, and a running job keeps" in reason


def test_a_slow_server_is_flagged_and_its_flag_closes(running):
    told = running(synchronization={"batching": "uniform"})
    iterate(told, 0, WARM_UP_REPORTS + 12, {1: 4.0})
    raised = [flag for flag in told.given(RaiseFlag) if flag.subject == "server"]
    assert [(flag.rank, flag.kind, flag.persistence) for flag in raised] == [
        (1, "communication", "transient"),
        (1, "communication", "lasting"),
    ]
    assert all(flag.flag.startswith("communication-s1-") for flag in raised)
    assert raised[-1].reason.startswith("s1 takes 4.0 times the others' median in communication")
    iterate(told, WARM_UP_REPORTS + 13, WARM_UP_REPORTS + 25, {})
    assert [close.flag for close in told.given(CloseFlag)] == [flag.flag for flag in raised]


def test_every_block_ends_committed_or_abandoned():
    over = {state for state, after in MOVE_ARROWS.items() if not after}
    assert over == {MoveState.COMMITTED, MoveState.ABANDONED}
    assert MoveState.COMMITTED not in MOVE_ARROWS[MoveState.ORDERED]
