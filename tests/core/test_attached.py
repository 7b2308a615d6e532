"""Attached jobs in the engine: ranks that come and go by themselves, rounds closed by reports, shares that follow."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from controlplane.core.commands import (
    CloseFlag,
    IssueOrders,
    IssuePlacement,
    MoveJob,
    MoveProcess,
    RaiseFlag,
    RejectMessage,
    RollBack,
    SetRoster,
    SetShares,
    StartProcess,
)
from controlplane.core.states import JobState, ProcessState
from controlplane.protocol.base import MAX_INT32
from tests.core.attached import BATCH, Attached
from tests.core.story import LB_BSP, of

Tell = Callable[..., Attached]


def test_it_waits_for_ranks_without_slots_or_processes_of_paceline(tell: Tell) -> None:
    story = tell().submitted()
    moved = story.given(MoveJob)[-1]
    assert (moved.state, moved.awaited) == (
        JobState.STARTING,
        "ranks, none of which is connected: start the script with paceline run",
    )
    story.comes(0)
    assert story.given(MoveJob)[-1].awaited == "ranks w1; 1 of 2 are connected"
    assert story.given(StartProcess) == []


def test_a_hello_is_answered_at_once_with_even_shares(tell: Tell) -> None:
    story = tell().submitted()
    (issued,) = of(IssueOrders, story.comes(1))
    orders = issued.orders
    assert (orders.generation, orders.shares, orders.share, orders.offset) == (0, [BATCH, BATCH], BATCH, BATCH)
    assert (orders.watermark, orders.decision_timeout_s, orders.global_batch) == (MAX_INT32, 0.0, 2 * BATCH)
    assert (orders.share_from, orders.origin_iteration, orders.origin_position) == (0, 0, 0)


def test_once_all_are_here_they_are_a_generation(tell: Tell) -> None:
    story = tell().running()
    assert story.state is JobState.RUNNING
    (roster,) = story.given(SetRoster)
    assert (roster.generation, roster.first_iteration, roster.ranks) == (1, 0, [0, 1])
    assert [story.orders[rank].generation for rank in (0, 1)] == [1, 1]
    assert story.given(IssuePlacement) == []


def test_a_rank_is_shown_with_what_it_reported_of_itself(tell: Tell) -> None:
    story = tell().running()
    shown = story.given(MoveProcess)[0]
    assert (shown.state, shown.instance, shown.agent) == (ProcessState.READY, "r0-1", 0)
    assert shown.environment == {"machine": "gpu-0", "device": "cuda:0", "launcher": "torchrun", "pid": "100"}
    assert shown.reason == "rank 0 of 2 said hello on gpu-0, started by torchrun"


def test_shares_follow_the_speeds_and_every_rank_receives_all_of_them(tell: Tell) -> None:
    story = tell(synchronization=LB_BSP).running()
    version = story.orders[0].shares_version
    story.iterate_at(8, 1000.0, 250.0)
    shares = story.orders[0].shares
    assert shares[0] > 40 > 20 > shares[1]
    assert sum(shares) == 2 * BATCH
    assert story.orders[1].shares == shares
    assert story.orders[0].share == shares[0]
    assert story.orders[1].offset == shares[0]
    assert story.orders[0].shares_version > version


def test_no_messages_are_sent_while_nothing_changes(tell: Tell) -> None:
    story = tell(synchronization=LB_BSP).running()
    story.iterate_at(40, 1000.0, 1000.0)
    before = len(story.given(IssueOrders))
    story.iterate_at(20, 1000.0, 1000.0, start=40)
    assert len(story.given(IssueOrders)) == before


def test_no_report_is_refused_before_all_ranks_are_here(tell: Tell) -> None:
    story = tell().submitted()
    story.comes(0)
    for iteration in range(5):
        assert of(RejectMessage, story.report(0, iteration)) == []
    story.comes(1)
    for iteration in range(5):
        story.report(1, iteration)
    assert story.job.round.completed == 4


def report_at(story: Attached, iteration: int, *seconds: float) -> None:
    """Each rank reports the iteration with even shares, and those seconds of compute."""
    world = len(seconds)
    for rank, compute_s in enumerate(seconds):
        position = BATCH * (world * iteration + rank)
        story.report(rank, iteration, compute_s=compute_s, samples=BATCH, position=position)


def batching_state(story: Attached) -> Any:
    return msgspec.msgpack.decode(story.engine.snapshot())["policies"]["batching"]


def test_the_first_iteration_of_ranks_leads_to_provisional_shares(tell: Tell) -> None:
    """One-time costs of 0.1 s each are in it: a speed ratio of 3 looks like one of 2."""
    story = tell(synchronization=LB_BSP).running()
    version = story.orders[0].shares_version
    report_at(story, 0, 0.1 + 0.1, 0.1 + 0.3)
    assert story.orders[0].shares == story.orders[1].shares == [43, 21]
    assert story.orders[0].shares_version > version
    decision = story.given(SetShares)[-1]
    assert (decision.shares, decision.iteration) == ({0: 43, 1: 21}, 1)
    assert decision.reason.endswith("; provisional, by the first iteration, which includes one-time costs")
    assert (decision.predicted_s, decision.speeds) == (None, {}), "these would be compared with what follows"


@pytest.mark.parametrize("name", ["lb-bsp-cpu", "lb-bsp-linear", "lb-bsp-gpu"])
def test_a_rank_with_much_larger_one_time_costs_keeps_a_quarter_of_its_share(tell: Tell, name: str) -> None:
    """And no other has more than one and a half times its own: its memory may not hold more."""
    story = tell(synchronization={"batching": {"name": name}}, workers=4).running()
    report_at(story, 0, 10.0, 0.1, 0.1, 0.1)
    assert all(BATCH // 4 <= share <= BATCH * 3 // 2 for share in story.orders[0].shares), story.orders[0].shares
    assert story.orders[0].shares[0] in {BATCH // 4, BATCH}
    assert sum(story.orders[0].shares) == 4 * BATCH


def test_provisional_shares_respect_limits_and_multiples(tell: Tell) -> None:
    story = tell(synchronization=LB_BSP, sample_multiple=8, limits={"minimum": 8, "maximum": 40}).running()
    report_at(story, 0, 0.1, 0.9)
    assert story.orders[0].shares == [40, 24]
    for iteration in (1, 2):
        report_at(story, iteration, 0.1, 0.9)
    assert story.orders[0].shares == [40, 24]


def test_the_policy_learns_nothing_from_the_first_iteration(tell: Tell) -> None:
    story = tell(synchronization=LB_BSP).running()
    before = batching_state(story)
    report_at(story, 0, 0.2, 0.4)
    assert story.orders[0].shares != [32, 32]
    assert batching_state(story) == before
    report_at(story, 1, 0.2, 0.4)
    assert batching_state(story) != before


def test_ranks_that_all_start_again_keep_what_is_known(tell: Tell) -> None:
    story = tell(synchronization=LB_BSP).running()
    for iteration in range(6):
        report_at(story, iteration, 0.1, 0.3)
    assert story.orders[0].shares == [48, 16]
    for rank in (0, 1):
        story.drops(rank)
        story.comes(rank)
    story.report(0, 6, compute_s=0.15)
    story.report(1, 6, compute_s=0.15)
    assert story.orders[0].shares == [48, 16]


def test_shares_follow_the_second_iteration_of_ranks_that_are_warm(tell: Tell) -> None:
    """The policy learns nothing from the first."""
    story = tell(synchronization=LB_BSP).running()
    report_at(story, 0, 0.6, 0.6)
    assert story.orders[0].shares == [32, 32]
    report_at(story, 1, 0.1, 0.3)
    assert story.orders[0].shares == [48, 16]
    assert "provisional" not in story.given(SetShares)[-1].reason


def test_a_second_iteration_that_takes_longer_than_the_first_is_warm_up_too(tell: Tell) -> None:
    story = tell(synchronization=LB_BSP).running()
    report_at(story, 0, 0.1, 0.1)
    report_at(story, 1, 0.15, 0.45)
    assert story.orders[0].shares == [32, 32]
    report_at(story, 2, 0.1, 0.3)
    assert story.orders[0].shares == [48, 16]


def test_the_first_iteration_decides_nothing_if_a_rank_has_made_several(tell: Tell) -> None:
    """A rank was replaced: the others' speeds are known."""
    story = tell(synchronization=LB_BSP).running()
    for iteration in range(4):
        report_at(story, iteration, 0.1, 0.3)
    story.drops(1)
    story.comes(1)
    decisions = len(story.given(SetShares))
    report_at(story, 4, 0.1, 0.9)
    assert story.orders[0].shares == [48, 16]
    assert len(story.given(SetShares)) == decisions


def test_shares_are_multiples_where_requested(tell: Tell) -> None:
    story = tell(synchronization=LB_BSP, sample_multiple=8).running()
    story.iterate_at(10, 1000.0, 230.0)
    decisions = story.given(SetShares)[1:]
    assert decisions
    assert all(share % 8 == 0 for decision in decisions for share in decision.shares.values())
    assert story.orders[0].shares[0] > story.orders[0].shares[1]


def test_a_ranks_own_multiple_counts(tell: Tell) -> None:
    story = tell(synchronization=LB_BSP).submitted()
    story.comes(0)
    story.comes(1, multiple=16)
    story.iterate_at(10, 1000.0, 230.0)
    assert [share % 16 for share in story.orders[0].shares] == [0, 0]


def test_the_ranks_batch_size_counts_where_it_is_another(tell: Tell) -> None:
    story = tell().submitted()
    for rank in (0, 1):
        story.comes(rank, batch_size=48)
    assert (story.orders[0].global_batch, story.orders[0].shares) == (96, [48, 48])


def test_a_rank_that_comes_as_another_process_is_a_new_instance(tell: Tell) -> None:
    story = tell(synchronization=LB_BSP).running()
    story.iterate_at(6, 1000.0, 250.0)
    learned = story.orders[0].shares
    story.drops(1)
    commands = story.comes(1)
    moves = {move.instance: move for move in of(MoveProcess, commands)}
    assert moves["r1-1"].state is ProcessState.LOST
    assert moves["r1-2"].state is ProcessState.READY
    assert [roster.generation for roster in story.given(SetRoster)] == [1, 2]
    assert story.orders[1].shares == learned
    assert story.orders[1].share_from == 6
    story.iterate_at(3, 1000.0, 250.0, start=6)
    assert story.job.round.completed == 8


def test_all_come_again_where_the_job_is_if_they_send_nothing_else(tell: Tell) -> None:
    story = tell().running()
    story.iterate_at(5, 1000.0, 1000.0)
    for rank in (0, 1):
        story.drops(rank)
    for rank in (0, 1):
        story.comes(rank)
        assert story.orders[rank].share_from == 5
        assert story.orders[rank].origin_position + (5 - story.orders[rank].origin_iteration) * 64 == 5 * 64
    story.iterate_at(2, 1000.0, 1000.0, start=5)
    assert story.job.round.completed == 6
    assert story.given(RollBack) == []


def test_ranks_that_begin_earlier_do_those_iterations_again(tell: Tell) -> None:
    story = tell().running()
    story.iterate_at(9, 1000.0, 1000.0)
    for rank in (0, 1):
        story.drops(rank)
    for rank in (0, 1):
        story.comes(rank, iteration=4, position=4 * 64)
    (back,) = story.given(RollBack)
    assert (back.to_iteration, back.completed) == (4, 8)
    story.iterate_at(7, 1000.0, 1000.0, start=4)
    assert story.job.round.completed == 10


def test_ranks_that_begin_later_leave_no_iteration_open(tell: Tell) -> None:
    story = tell().submitted()
    for rank in (0, 1):
        story.comes(rank, iteration=500, position=32_000)
    assert story.orders[0].origin_position == 32_000
    story.iterate_at(3, 1000.0, 1000.0, start=500)
    assert story.job.round.completed == 502


def test_another_world_size_is_a_new_generation(tell: Tell) -> None:
    story = tell(workers=3).running()
    story.iterate_at(4, 1000.0, 1000.0, 1000.0)
    for rank in range(3):
        story.drops(rank)
    for rank in range(2):
        story.comes(rank, world=2)
    roster = story.given(SetRoster)[-1]
    assert (roster.ranks, roster.first_iteration) == ([0, 1], 4)
    orders = story.orders[0]
    assert (orders.shares, orders.global_batch) == ([BATCH, BATCH], 64)
    assert orders.origin_position + (4 - orders.origin_iteration) * 64 == 4 * 96
    gone = [move for move in story.given(MoveProcess) if move.index == 2][-1]
    assert (gone.state, gone.reason) == (ProcessState.STOPPED, "the ranks are 2 now")
    story.iterate_at(2, 1000.0, 1000.0, start=4)
    assert story.job.round.completed == 5


def test_more_ranks_than_requested_are_as_welcome(tell: Tell) -> None:
    story = tell().submitted()
    for rank in range(3):
        story.comes(rank, world=3)
    assert story.given(SetRoster)[-1].ranks == [0, 1, 2]


def test_an_unresponsive_rank_is_shown_and_reported_and_ends_nothing(tell: Tell) -> None:
    story = tell().running()
    story.iterate_at(3, 1000.0, 1000.0)
    story.passes(11, speaking=(0,))
    away = story.given(MoveProcess)[-1]
    assert (away.index, away.state) == (1, ProcessState.UNREACHABLE)
    story.passes(16, speaking=(0,))
    flag = story.given(RaiseFlag)[-1]
    assert (flag.rank, flag.kind) == (1, "lost")
    assert "its launcher owns it" in flag.reason
    assert story.state is JobState.RUNNING
    story.report(1, 3)
    assert story.given(CloseFlag)[-1].flag == flag.flag
    assert story.given(MoveProcess)[-1].state is ProcessState.READY


def test_reports_of_an_outage_are_all_taken_when_they_come(tell: Tell) -> None:
    story = tell().running()
    story.iterate_at(3, 1000.0, 1000.0)
    for rank in (0, 1):
        story.drops(rank)
    for rank in (0, 1):
        story.comes(rank, again=True)
        for iteration in range(3, 60):
            story.report(rank, iteration)
    assert story.job.round.completed == 59
    assert len(story.given(SetRoster)) == 1


def test_a_report_that_comes_twice_counts_once(tell: Tell) -> None:
    story = tell().running()
    report = story.a_report(0, 0)
    story.say(0, report)
    story.say(0, report)
    story.report(1, 0)
    assert (story.job.round.completed, story.job.workers[0].reports) == (0, 1)


def test_what_is_remembered_of_an_outage_is_bounded(tell: Tell) -> None:
    story = tell().running()
    story.drops(1)
    for iteration in range(1_500):
        story.report(0, iteration)
    assert len(story.job.round.observed) <= 1_000
    for iteration in range(1_500):
        story.report(1, iteration)
    assert story.job.round.completed == 1_499


def test_a_gap_is_rejected_so_that_nothing_is_lost(tell: Tell) -> None:
    story = tell().running()
    (told,) = of(RejectMessage, story.report(0, 0, number=5))
    assert (told.rejection.code, told.rejection.number) == ("out-of-order", 2)
