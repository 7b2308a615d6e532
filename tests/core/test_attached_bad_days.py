"""Bad days of attached jobs: each ends in a sentence, and never a training that can continue."""

from collections.abc import Callable

import pytest

from controlplane.core.commands import (
    CloseFlag,
    DeclineRequest,
    MoveJob,
    RaiseFlag,
    RejectMessage,
    SetShares,
    StartProcess,
)
from controlplane.core.events import IncarnationBegan
from controlplane.core.states import JobState
from tests.core.attached import Attached
from tests.core.story import LB_BSP, of

Tell = Callable[..., Attached]


@pytest.mark.parametrize(("field", "value"), [("batch_size", 48), ("sample_count", 999)])
def test_ranks_with_different_settings_are_reported_and_keep_equal_shares(tell: Tell, field: str, value: int) -> None:
    story = tell(synchronization=LB_BSP).submitted()
    story.comes(0)
    commands = story.comes(1, **{field: value})
    (flag,) = of(RaiseFlag, commands)
    assert (flag.subject, flag.kind) == ("job", "ranks")
    assert f"the ranks differ in {field}: w0 " in flag.reason
    assert {told.index for told in of(RejectMessage, commands)} == {0, 1}
    for iteration in range(8):
        for rank in (0, 1):
            assert of(RejectMessage, story.report(rank, iteration)) == []
    assert story.given(SetShares) == []
    assert story.state is JobState.STARTING
    story.comes(1)
    assert story.state is JobState.RUNNING
    assert story.given(CloseFlag)[-1].flag == flag.flag


def differing(tell: Tell) -> Attached:
    story = tell().submitted()
    story.comes(0)
    story.comes(1, batch_size=48)
    for iteration in range(3):
        for rank in (0, 1):
            story.report(rank, iteration)
    return story


DIFFERED = "its ranks differed, so shares stayed equal and no iteration was counted"


def test_a_job_whose_ranks_differed_succeeds_with_its_launcher(tell: Tell) -> None:
    story = differing(tell)
    story.launcher_ends(0)
    assert (story.state, story.given(MoveJob)[-1].reason) == (
        JobState.SUCCEEDED,
        f"its launcher ended with status 0; {DIFFERED}",
    )


def test_a_job_whose_ranks_differed_succeeds_once_every_loop_has_ended(tell: Tell) -> None:
    story = differing(tell)
    story.done(0, 3)
    assert story.state is JobState.STARTING
    story.done(1, 3)
    assert story.state is JobState.FINISHING
    story.passes(60)
    assert (story.state, story.given(MoveJob)[-1].reason) == (
        JobState.SUCCEEDED,
        f"every rank has ended its loop; {DIFFERED}",
    )


def test_a_launcher_that_ends_well_fails_a_job_that_not_every_rank_has_reached(tell: Tell) -> None:
    story = tell().submitted()
    story.comes(0)
    story.report(0, 0)
    story.launcher_ends(0)
    assert story.state is JobState.FAILED
    assert "only 1 rank of 2 said hello" in story.given(MoveJob)[-1].reason


def test_a_job_whose_ranks_differ_is_not_given_up_while_they_train(tell: Tell) -> None:
    story = tell(wait_s=60).submitted()
    story.comes(0)
    story.comes(1, batch_size=48)
    for _ in range(20):
        story.passes(8, speaking=(0, 1))
    assert story.state is JobState.STARTING
    story.passes(11)
    story.passes(60)
    assert story.state is JobState.FAILED


def test_ranks_of_different_worlds_are_reported(tell: Tell) -> None:
    story = tell().submitted()
    story.comes(0, world=2)
    commands = story.comes(1, world=4)
    (flag,) = of(RaiseFlag, commands)
    assert flag.reason == (
        "the ranks report different world sizes: w0 of a world of 2; w1 of a world of 4; start all with one world size"
    )
    assert story.state is JobState.STARTING


@pytest.mark.parametrize(("rank", "said", "world"), [(2, 2, 2), (0, 1, 2), (5, 5, 3)])
def test_a_rank_that_cannot_be_is_refused_and_changes_nothing(tell: Tell, rank: int, said: int, world: int) -> None:
    story = tell().submitted()
    before = story.engine.snapshot()
    story.lives[rank] = 1
    (told,) = story.say(rank, story.a_hello(said, world=world))
    assert isinstance(told, RejectMessage)
    assert "below the world's size" in told.reason
    assert len(before) == len(story.engine.snapshot())
    assert story.job.workers == {}


def test_two_runs_with_one_token_do_not_take_turns(tell: Tell) -> None:
    story = tell().running()
    story.comes(0)
    told = story.say(0, story.a_hello(0, host="other"), instance="r0-1")
    (stale,) = of(RejectMessage, told)
    assert (stale.rejection.code, stale.instance) == ("stale", "r0-1")
    assert "r0-2 follows it" in stale.reason
    assert story.job.workers[0].instance == "r0-2"


def test_message_before_a_hello_is_refused(tell: Tell) -> None:
    story = tell().running()
    story.lives[1] = 7
    (told,) = of(RejectMessage, story.report(1, 0, number=1))
    assert (told.rejection.code, told.reason) == ("unexpected", "the first message of a rank is its hello")


def test_another_release_is_reported_and_ends_nothing(tell: Tell) -> None:
    story = tell().submitted()
    story.comes(0, release="0.0.1")
    story.comes(1)
    assert story.state is JobState.RUNNING
    flag = story.given(RaiseFlag)[-1]
    assert (flag.kind, flag.rank) == ("release", 0)
    assert "w0 has Paceline 0.0.1, the control plane" in flag.reason


def test_what_was_ordered_holds_when_a_part_of_the_log_was_lost(tell: Tell) -> None:
    story = tell(synchronization=LB_BSP).running()
    story.iterate_at(8, 1000.0, 250.0)
    version, shares = story.orders[0].shares_version, story.orders[0].shares
    published = dict(story.orders)
    commands = story.see(
        IncarnationBegan(incarnation=1, reason="a part of the log was lost", after="0-1", published=published)
    )
    assert of(StartProcess, commands) == []
    assert story.orders[0].shares == shares
    story.iterate_at(8, 250.0, 1000.0, start=8)
    assert story.orders[0].shares_version > version
    assert not isinstance(commands[0], DeclineRequest)
