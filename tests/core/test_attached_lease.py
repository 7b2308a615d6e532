"""The lease of an attached job: a launcher that was killed cannot say so, and its job does not wait for it for long."""

from collections.abc import Callable

import pytest

from controlplane.core.commands import MoveJob
from controlplane.core.events import ControlPlaneResumed, PauseRequested, ResumeRequested
from controlplane.core.states import JobState
from tests.core.attached import Attached

Tell = Callable[..., Attached]

LEASE_S = 300


def leased(tell: Tell) -> Attached:
    return tell(lease_s=LEASE_S)


def test_a_job_whose_launcher_was_killed_before_any_hello_fails_once_its_lease_is_over(tell: Tell) -> None:
    story = leased(tell).submitted()
    begun_ms = story.now_ms
    assert story.engine.deadline_ms == begun_ms + LEASE_S * 1000
    story.passes(LEASE_S - 1, renewed_s_ago=100)
    assert story.state is JobState.STARTING
    assert story.engine.deadline_ms == story.now_ms + (LEASE_S - 100) * 1000
    story.passes(LEASE_S - 100)
    ended = story.given(MoveJob)[-1]
    assert ended.state is JobState.FAILED
    assert ended.reason == (
        "its launcher has not renewed its lease for 300 s (lease_s is 300), and no rank said hello: it was killed, or"
        " cannot reach the control plane; start the script again"
    )


def test_a_launcher_that_renews_may_prepare_for_as_long_as_ranks_are_waited_for(tell: Tell) -> None:
    story = leased(tell).submitted()
    for _ in range(11):
        story.passes(LEASE_S, renewed_s_ago=10)
        assert story.state is JobState.STARTING
    story.passes(LEASE_S, renewed_s_ago=10)
    assert story.given(MoveJob)[-1].reason.startswith("no rank said hello within 3600 s: ")


def test_a_job_whose_launcher_was_killed_with_all_ranks_fails_once_its_lease_is_over(tell: Tell) -> None:
    story = leased(tell).running()
    story.iterate_at(2, 1000.0, 1000.0)
    for rank in (0, 1):
        story.drops(rank)
    story.passes(16, renewed_s_ago=16)
    waits = story.given(MoveJob)[-1]
    assert (waits.state, waits.reason) == (JobState.PAUSED, "all 2 ranks are gone")
    assert waits.awaited == (
        "ranks, none of which is connected: it continues when they return, and fails after 3600 s without them, or "
        "after"
        " 300 s without a renewal by their launcher"
    )
    story.passes(LEASE_S - 1)
    assert story.state is JobState.PAUSED
    story.passes(1)
    ended = story.given(MoveJob)[-1]
    assert (ended.state, ended.reason) == (
        JobState.FAILED,
        "its launcher has not renewed its lease for 316 s (lease_s is 300), and its ranks are gone: it was killed, or"
        " cannot reach the control plane; start the script again",
    )


def test_ranks_that_train_on_without_their_launcher_keep_the_job(tell: Tell) -> None:
    story = leased(tell).running()
    for _ in range(200):
        story.passes(5, speaking=(0, 1))
    assert story.state is JobState.RUNNING
    for rank in (0, 1):
        story.done(rank, 3)
    story.passes(61)
    assert story.state is JobState.SUCCEEDED


def test_an_outage_of_the_control_plane_does_not_expire_a_lease(tell: Tell) -> None:
    story = leased(tell).submitted()
    story.see(ControlPlaneResumed(who="a gateway"), after_ms=LEASE_S * 1000)
    story.passes(1)
    assert story.state is JobState.STARTING
    story.passes(LEASE_S)
    assert story.state is JobState.FAILED


@pytest.mark.parametrize(("changes", "left_s"), [({"lease_s": LEASE_S}, LEASE_S), ({"wait_s": 60}, 60)])
def test_a_paused_job_whose_ranks_are_all_gone_does_not_wait_forever(
    tell: Tell, changes: dict[str, float], left_s: float
) -> None:
    story = tell(**changes).running()
    story.see(PauseRequested(actor="ann"))
    for rank in (0, 1):
        story.drops(rank)
    story.passes(16)
    waits = story.given(MoveJob)[-1]
    assert (waits.state, waits.reason) == (JobState.PAUSED, "all 2 ranks are gone")
    story.passes(left_s + 1)
    assert story.state is JobState.FAILED


def test_ranks_that_come_back_to_a_paused_job_leave_it_paused(tell: Tell) -> None:
    story = leased(tell).running()
    story.see(PauseRequested(actor="ann"))
    for rank in (0, 1):
        story.drops(rank)
    story.passes(16)
    for rank in (0, 1):
        story.comes(rank, again=True)
    assert story.state is JobState.PAUSED
    story.passes(4000, speaking=(0, 1))
    assert story.state is JobState.PAUSED
    story.see(ResumeRequested(actor="ann"))
    assert story.state is JobState.RUNNING
