"""How attached jobs end, are paused and changed: their launcher owns the ranks, and people ask for what can be."""

from collections.abc import Callable
from typing import Any

import pytest

from controlplane.core.commands import (
    DeclineRequest,
    IssueOrders,
    MoveJob,
    MoveProcess,
    RaiseFlag,
    SetRoster,
    StopProcess,
)
from controlplane.core.engine import Engine
from controlplane.core.events import (
    ChangeRequested,
    Entry,
    ExclusionRequested,
    JobSubmitted,
    LauncherEnded,
    PauseRequested,
    ResumeRequested,
    ServerRequested,
    StopRequested,
)
from controlplane.core.states import RANKS_AWAITED, JobState, ProcessState
from controlplane.protocol.spec import Choice
from tests.core.attached import Attached

Tell = Callable[..., Attached]


def test_when_all_are_gone_it_waits_and_continues_when_they_return(tell: Tell) -> None:
    story = tell().running()
    story.iterate_at(2, 1000.0, 1000.0)
    for rank in (0, 1):
        story.drops(rank)
    story.passes(16)
    waits = story.given(MoveJob)[-1]
    assert (waits.state, waits.reason) == (JobState.PAUSED, "all 2 ranks are gone")
    assert waits.awaited.startswith(RANKS_AWAITED)
    assert waits.awaited == (
        "ranks, none of which is connected: it continues when they return, and fails after 3600 s without them. If "
        "their"
        " launcher was killed, no exit code is reported: start the script again with this job's token, or stop the"
        " job"
    )
    assert not any(command.orders.hold for command in story.given(IssueOrders))
    for rank in (0, 1):
        story.comes(rank, again=True)
    assert story.state is JobState.RUNNING
    story.iterate_at(2, 1000.0, 1000.0, start=2)
    assert story.job.round.completed == 3


def test_it_fails_when_no_one_comes_for_as_long_as_it_may_wait(tell: Tell) -> None:
    story = tell(wait_s=600).submitted()
    assert story.engine.deadline_ms == story.now_ms + 600_000
    story.passes(600)
    ended = story.given(MoveJob)[-1]
    assert ended.state is JobState.FAILED
    assert ended.reason.startswith("no rank said hello within 600 s: start the script with paceline run")


def test_it_fails_when_its_ranks_stay_away(tell: Tell) -> None:
    story = tell(wait_s=60).running()
    for rank in (0, 1):
        story.drops(rank)
    story.passes(16)
    story.passes(60)
    ended = story.given(MoveJob)[-1]
    assert ended.state is JobState.FAILED
    assert ended.reason == "its ranks were disconnected for 60 s, the limit set by wait_s"


@pytest.mark.parametrize(
    ("status", "state", "told"),
    [
        (0, JobState.SUCCEEDED, "its launcher ended with status 0; 3 iterations were done"),
        (3, JobState.FAILED, "its launcher ended with status 3: CUDA out of memory"),
        (-9, JobState.FAILED, "its launcher ended by signal 9: CUDA out of memory"),
    ],
)
def test_the_launchers_exit_code_is_its_end(tell: Tell, status: int, state: JobState, told: str) -> None:
    story = tell().running()
    story.iterate_at(3, 1000.0, 1000.0)
    story.launcher_ends(status, "CUDA out of memory" if status else "")
    assert (story.state, story.given(MoveJob)[-1].reason) == (state, told)
    assert {move.state for move in story.given(MoveProcess)[-2:]} == {ProcessState.STOPPED}
    assert (story.given(StopProcess), story.engine.over) == ([], True)


def test_a_launcher_that_ends_well_without_a_rank_has_not_trained_here(tell: Tell) -> None:
    story = tell().submitted()
    story.launcher_ends(0)
    ended = story.given(MoveJob)[-1]
    assert ended.state is JobState.FAILED
    assert "no rank said hello: call paceline.attach() in the script" in ended.reason


def test_once_every_loop_has_ended_it_succeeds_without_a_launcher_too(tell: Tell) -> None:
    story = tell().running()
    story.iterate_at(3, 1000.0, 1000.0)
    story.done(0, 3)
    assert story.state is JobState.RUNNING
    story.done(1, 3)
    assert (story.state, story.given(MoveJob)[-1].awaited) == (JobState.FINISHING, "its launcher's exit code")
    story.passes(60)
    assert story.state is JobState.SUCCEEDED
    assert story.given(MoveJob)[-1].reason == "every rank has ended its loop; 3 iterations were done"


def test_ranks_that_come_after_every_loop_has_ended_begin_the_next_phase(tell: Tell) -> None:
    story = tell().running()
    story.iterate_at(3, 1000.0, 1000.0)
    for rank in (0, 1):
        story.done(rank, 3)
    for rank in (0, 1):
        story.comes(rank)
    assert story.state is JobState.RUNNING
    story.iterate_at(2, 1000.0, 1000.0, start=3)
    assert story.job.round.completed == 4
    story.launcher_ends(0)
    assert story.state is JobState.SUCCEEDED


def test_so_many_iterations_as_were_requested_end_it(tell: Tell) -> None:
    story = tell(stop={"iterations": 4}).running()
    assert story.orders[0].stop_at == 4
    story.iterate_at(4, 1000.0, 1000.0)
    story.done(0, 4)
    assert story.state is JobState.FINISHING
    story.done(1, 4)
    assert (story.state, story.given(MoveJob)[-1].reason) == (
        JobState.SUCCEEDED,
        "4 iterations were requested; 4 iterations were done",
    )


def test_a_stop_is_asked_of_the_ranks_and_then_it_is_cancelled(tell: Tell) -> None:
    story = tell().running()
    story.iterate_at(3, 1000.0, 1000.0)
    story.see(StopRequested(actor="ann"))
    assert [story.orders[rank].stop_at for rank in (0, 1)] == [3, 3]
    assert story.state is JobState.FINISHING
    for rank in (0, 1):
        story.report(rank, 3)
        story.done(rank, 4)
    assert (story.state, story.given(MoveJob)[-1].reason) == (
        JobState.CANCELLED,
        "stopped by ann; 4 iterations were done",
    )


def test_a_stop_waits_for_ranks_that_do_not_answer_only_for_a_while(tell: Tell) -> None:
    story = tell().running()
    story.see(StopRequested(actor="ann"))
    story.passes(30, speaking=(0, 1))
    assert story.state is JobState.CANCELLED


def test_a_second_stop_ends_it_at_once(tell: Tell) -> None:
    story = tell().running()
    story.see(StopRequested(actor="ann"))
    story.see(StopRequested(actor="ann"))
    assert story.state is JobState.CANCELLED


def test_a_stop_before_any_rank_is_here_ends_it_at_once(tell: Tell) -> None:
    story = tell().submitted()
    story.see(StopRequested(actor="ann"))
    assert story.state is JobState.CANCELLED


def test_a_launcher_that_ends_since_it_was_stopped_leaves_it_cancelled(tell: Tell) -> None:
    story = tell().running()
    story.see(StopRequested(actor="ann"))
    story.launcher_ends(1)
    assert story.state is JobState.CANCELLED


def test_a_pause_holds_every_rank_at_a_boundary_that_they_agree_on(tell: Tell) -> None:
    story = tell().running()
    story.iterate_at(2, 1000.0, 1000.0)
    story.see(PauseRequested(actor="ann"))
    assert all(story.orders[rank].hold for rank in (0, 1))
    for rank in (0, 1):
        story.report(rank, 2)
        story.held(rank, 3)
    assert "every worker has stopped" in story.given(MoveJob)[-1].reason
    story.see(ResumeRequested(actor="ann"))
    assert story.state is JobState.RUNNING
    assert not any(story.orders[rank].hold for rank in (0, 1))


def test_ranks_that_return_to_a_paused_job_are_paused(tell: Tell) -> None:
    story = tell().running()
    story.see(PauseRequested(actor="ann"))
    for rank in (0, 1):
        story.drops(rank)
    for rank in (0, 1):
        story.comes(rank)
    assert story.state is JobState.PAUSED
    assert all(story.orders[rank].hold for rank in (0, 1))


def test_another_batching_policy_takes_over_while_it_runs(tell: Tell) -> None:
    story = tell().running()
    story.iterate_at(3, 1000.0, 250.0)
    story.see(ChangeRequested(actor="ann", choices={"batching": Choice(name="lb-bsp-gpu")}))
    assert story.given(SetRoster)[-1].generation == 2
    story.iterate_at(60, 1000.0, 250.0, start=3)
    assert story.orders[0].shares[0] > story.orders[0].shares[1]


@pytest.mark.parametrize(
    ("choices", "told"),
    [
        ({"barrier": Choice(name="asp")}, "submit a native job for that (launch: native)"),
        ({"data": Choice(name="exchange")}, "submit a native job for that (launch: native)"),
        ({"batching": Choice(name="deadline")}, "a policy that sets shares, with launch attached"),
    ],
)
def test_changes_that_need_our_loop_are_declined_with_the_cure(
    tell: Tell, choices: dict[str, Choice], told: str
) -> None:
    assert told in tell().running().declined(ChangeRequested(actor="ann", choices=choices))


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (ExclusionRequested(actor="ann", rank=0), "its launcher owns the ranks"),
        (ServerRequested(actor="ann"), "an attached job has no servers"),
    ],
)
def test_what_only_a_launcher_can_do_is_declined(tell: Tell, event: Any, told: str) -> None:
    assert told in tell().running().declined(event)


def test_a_loss_that_is_no_number_is_reported_and_ends_nothing(tell: Tell) -> None:
    story = tell().running()
    story.report(0, 0, spoilt="nan", loss=0.0, samples=0)
    story.report(1, 0, spoilt="nan", loss=0.0, samples=0)
    assert story.state is JobState.RUNNING
    assert "the script continues" in story.given(RaiseFlag)[-1].reason


def test_a_job_without_valid_policies_refuses_events_of_its_ranks() -> None:
    """It has no policies to ask, and no processes: each event has its own answer."""

    def broken(question: str, choice: Choice) -> Any:
        raise OSError(f"{question} {choice.name} cannot be loaded")

    engine = Engine(job=7, resolve=broken)
    submitted = engine.handle(Entry(id="1-0", event=JobSubmitted(spec=Attached().spec)))
    assert [command.state for command in submitted if isinstance(command, MoveJob)] == [JobState.FAILED]
    (declined,) = engine.handle(Entry(id="2-0", event=LauncherEnded(actor="ada", exit_code=0)))
    assert (type(declined), declined.reason) == (DeclineRequest, "job 7: finish by ada, but it is failed")
