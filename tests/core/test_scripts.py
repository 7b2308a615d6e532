"""The script of an attached job that agents start: its slots, attempts and ends."""

from collections.abc import Callable
from typing import Any

import pytest

from controlplane.core.commands import AnyCommand, MoveJob, ReleaseSlots, RequestSlot, StartProcess, StopProcess
from controlplane.core.context import SLOTS_RETURN_MS, EventRefused
from controlplane.core.events import (
    Assignment,
    IncarnationBegan,
    LauncherEnded,
    ProcessDied,
    SlotRefused,
    SlotsAssigned,
    StopRequested,
)
from controlplane.core.scripts import ASK_AGAIN_MS, ENDS_MS
from controlplane.core.states import JobState
from controlplane.protocol.messages import RankHello
from controlplane.protocol.orders import Script
from tests.core.attached import Attached
from tests.core.story import of

Tell = Callable[..., Attached]
SLOTS = [
    Assignment(role="worker", index=0, agent=1, slot=2, host="10.0.0.1"),
    Assignment(role="worker", index=1, agent=1, slot=3, host="10.0.0.1"),
    Assignment(role="worker", index=2, agent=4, slot=0, host="10.0.0.4"),
]
COMMAND = ["python", "train.py"]


def ordered(tell: Tell, **changes: Any) -> Attached:
    """Its processes were ordered, and no rank is connected yet."""
    story = tell(command=COMMAND, workers=3, **changes).submitted()
    story.see(SlotsAssigned(assignments=SLOTS))
    return story


def running(tell: Tell, **changes: Any) -> Attached:
    story = ordered(tell, **changes)
    for rank in range(3):
        story.comes(rank)
    story.iterate_at(3, 1000.0, 1000.0, 1000.0)
    return story


def started(story: Attached) -> dict[int, str]:
    """By rank, the instance that was ordered last."""
    return {command.index: command.instance for command in story.given(StartProcess)}


def ends(story: Attached, rank: int, status: int = 0, **more: Any) -> list[AnyCommand]:
    return story.see(ProcessDied(role="worker", index=rank, instance=started(story)[rank], status=status, **more))


def due(story: Attached) -> list[AnyCommand]:
    """Time passes until the engine's next deadline, while all connected ranks send heartbeats."""
    assert story.engine.deadline_ms is not None
    return story.passes((story.engine.deadline_ms - story.now_ms) / 1000, speaking=(0, 1, 2))


def test_it_waits_for_slots_and_starts_one_process_per_rank(tell: Tell) -> None:
    story = tell(command=COMMAND, workers=3).submitted()
    assert (story.state, story.given(MoveJob)[-1].awaited) == (JobState.SUBMITTED, "3 worker slots")
    story.see(SlotsAssigned(assignments=SLOTS))
    assert [move.reason for move in story.given(MoveJob)][1:] == [
        "3 slots on 2 machines are reserved",
        "its script was ordered",
    ]
    assert story.given(MoveJob)[-1].awaited == "ranks, none of which is connected: its script is starting"
    places = [(each.index, each.agent, each.slot, each.script) for each in story.given(StartProcess)]
    first = {"world": 3, "address": "10.0.0.1", "attempt": 1}
    assert places == [
        (0, 1, 2, Script(slots=[2, 3], **first)),
        (1, 1, 3, Script(slots=[2, 3], **first)),
        (2, 4, 0, Script(slots=[0], **first)),
    ]
    assert len(set(started(story).values())) == 3


def test_ranks_run_on_the_machines_of_their_processes(tell: Tell) -> None:
    story = running(tell)
    assert story.state is JobState.RUNNING
    assert [(rank, worker.agent, worker.slot) for rank, worker in sorted(story.job.workers.items())] == [
        (0, 1, 2),
        (1, 1, 3),
        (2, 4, 0),
    ]


@pytest.mark.parametrize(
    "slots",
    [SLOTS[:2], [*SLOTS[:2], SLOTS[1]], [*SLOTS[:2], Assignment(role="server", index=2, agent=1, slot=0)]],
)
def test_slots_that_are_not_one_for_each_rank_change_nothing(tell: Tell, slots: list[Assignment]) -> None:
    story = tell(command=COMMAND, workers=3).submitted()
    with pytest.raises(EventRefused, match=r"slots for \d processes, expected one for each of 3 ranks"):
        story.see(SlotsAssigned(assignments=slots))
    assert story.state is JobState.SUBMITTED


def test_it_succeeds_when_all_processes_end_with_0(tell: Tell) -> None:
    story = running(tell)
    for rank in range(3):
        story.done(rank, 3)
    assert (story.state, story.given(MoveJob)[-1].awaited) == (JobState.FINISHING, "its script's exit code")
    story.passes(3600)
    assert story.state is JobState.FINISHING
    for rank in range(3):
        assert story.state is JobState.FINISHING
        ends(story, rank)
    assert (story.state, story.given(MoveJob)[-1].reason) == (
        JobState.SUCCEEDED,
        "its script ended with status 0; 3 iterations were done",
    )
    assert (len(story.given(ReleaseSlots)), story.engine.over, story.given(StopProcess)) == (1, True, [])


def test_a_script_without_attach_fails_with_the_cure(tell: Tell) -> None:
    story = ordered(tell)
    for rank in range(3):
        ends(story, rank)
    ended = story.given(MoveJob)[-1]
    assert ended.state is JobState.FAILED
    assert (
        "its script ended with status 0, but no rank said hello: call paceline.attach() in the script" in ended.reason
    )


def test_a_process_that_fails_ends_the_others_and_the_job(tell: Tell) -> None:
    story = running(tell)
    stopped = of(StopProcess, ends(story, 1, 3, detail="Traceback\nValueError: no such file"))
    assert [(each.index, each.agent) for each in stopped] == [(0, 1), (2, 4)]
    assert story.state is JobState.RUNNING
    ends(story, 0, -15)
    ends(story, 2, -15)
    assert (story.state, story.given(MoveJob)[-1].reason) == (
        JobState.FAILED,
        "its script failed: w1 ended with status 3 (ValueError: no such file)",
    )
    assert story.engine.over


def test_ends_that_nobody_reports_are_not_awaited_forever(tell: Tell) -> None:
    story = running(tell)
    ends(story, 1, 3)
    ends(story, 0, -15)
    story.passes(ENDS_MS / 1000, speaking=(2,))
    assert (story.state, story.given(MoveJob)[-1].reason) == (
        JobState.FAILED,
        "its script failed: w1 ended with status 3; no end of w2 was reported",
    )
    assert story.engine.over


def test_all_start_again_as_often_as_the_spec_allows(tell: Tell) -> None:
    story = running(tell, elastic={"restarts": 1})
    ends(story, 1, 3)
    ends(story, 0, -15)
    ends(story, 2, -15)
    waits = story.given(MoveJob)[-1]
    assert (waits.state, waits.reason, waits.awaited) == (
        JobState.PAUSED,
        "its script failed: w1 ended with status 3; restart 1 of 1",
        "ranks, which start again in 0.5 s",
    )
    assert [each.index for each in of(RequestSlot, due(story))] == [0, 1, 2]
    before = started(story)
    for slot in SLOTS[:2]:
        story.see(SlotsAssigned(assignments=[slot]))
    assert started(story) == before
    again = story.see(SlotsAssigned(assignments=[Assignment(role="worker", index=2, agent=9, slot=5, host="10.0.0.9")]))
    assert {each.script.attempt for each in of(StartProcess, again) if each.script} == {2}
    assert [(each.index, each.agent) for each in of(StartProcess, again)] == [(0, 1), (1, 1), (2, 9)]
    assert not set(before.values()) & set(started(story).values())
    for rank in range(3):
        story.comes(rank)
    assert story.state is JobState.RUNNING
    story.iterate_at(2, 1000.0, 1000.0, 1000.0, start=3)
    assert story.job.round.completed == 4
    for rank in range(3):
        ends(story, rank, 1 if rank == 0 else -15)
    assert (story.state, story.given(MoveJob)[-1].reason) == (
        JobState.FAILED,
        "its script failed: w0 ended with status 1; it was started again once, the maximum",
    )


def test_a_lost_machine_is_a_failure_of_all(tell: Tell) -> None:
    story = running(tell, elastic={"restarts": 2})
    lost = {"is_agent_lost": True, "detail": "its machine has been unreachable for more than 10 s"}
    assert [each.index for each in of(StopProcess, ends(story, 2, -1, **lost))] == [0, 1]
    for rank in (0, 1):
        ends(story, rank, -15)
    assert story.given(MoveJob)[-1].reason == (
        "its script failed: w2 was lost: its machine has been unreachable for more than 10 s; restart 1 of 2"
    )


def test_without_a_slot_it_asks_again_and_waits_no_longer_than_its_spec_allows(tell: Tell) -> None:
    story = running(tell, elastic={"restarts": 2}, wait_s=60)
    for rank in range(3):
        ends(story, rank, -9)
        story.drops(rank)
    due(story)
    for slot in SLOTS[:2]:
        story.see(SlotsAssigned(assignments=[slot]))
    refused = SlotRefused(role="worker", index=2, reason="online machines have 2 worker slots, 0 of them free")
    story.see(refused)
    assert story.given(MoveJob)[-1].awaited == (
        "ranks, which start when a worker slot for w2 is free: online machines have 2 worker slots, 0 of them free"
    )
    assert story.see(refused) == []
    assert [each.index for each in of(RequestSlot, story.passes(ASK_AGAIN_MS / 1000))] == [2]
    story.passes(60)
    assert (story.state, story.given(MoveJob)[-1].reason) == (
        JobState.FAILED,
        "its ranks were disconnected for 60 s, the limit set by wait_s",
    )
    late = story.see(SlotsAssigned(assignments=SLOTS[2:]))
    assert [type(command) for command in late] == [ReleaseSlots]


def test_a_script_that_fails_before_it_trains_is_not_started_again(tell: Tell) -> None:
    story = ordered(tell, elastic={"restarts": 5})
    ends(story, 0, 127, detail="found no program trian.py in /srv")
    for rank in (1, 2):
        ends(story, rank, -15)
    assert (story.state, story.given(MoveJob)[-1].reason) == (
        JobState.FAILED,
        "its script failed: w0 ended with status 127 (found no program trian.py in /srv)",
    )


def test_a_machine_that_is_lost_before_it_trains_is_replaced(tell: Tell) -> None:
    story = ordered(tell, elastic={"restarts": 1})
    ends(story, 2, -1, is_agent_lost=True)
    for rank in (0, 1):
        ends(story, rank, -15)
    assert story.state is JobState.STARTING
    assert len(of(RequestSlot, due(story))) == 3


def test_a_stop_lets_the_ranks_save_and_ends_their_processes_in_time(tell: Tell) -> None:
    story = running(tell)
    story.see(StopRequested(actor="ada"))
    assert (story.state, story.given(StopProcess)) == (JobState.FINISHING, [])
    for rank in range(3):
        story.done(rank, 4)
    assert story.state is JobState.FINISHING
    ends(story, 0, 1)
    ends(story, 1, 0)
    assert story.given(StopProcess) == []
    commands = story.passes(31)
    assert story.state is JobState.CANCELLED
    assert {each.index for each in of(StopProcess, commands)} == {2}
    assert not story.given(ReleaseSlots)
    ends(story, 2, -9)
    assert len(story.given(ReleaseSlots)) == 1


def test_a_stop_ends_with_the_last_process(tell: Tell) -> None:
    story = running(tell)
    story.see(StopRequested(actor="ada"))
    for rank in range(3):
        story.done(rank, 4)
        ends(story, rank, 1)
    assert (story.state, story.given(StopProcess)) == (JobState.CANCELLED, [])
    assert story.given(MoveJob)[-1].reason.startswith("stopped by ada; w0 ended with status 1; ")


def test_a_stop_before_any_rank_ends_the_processes_at_once(tell: Tell) -> None:
    story = ordered(tell)
    commands = story.see(StopRequested(actor="ada"))
    assert story.state is JobState.CANCELLED
    assert [each.index for each in of(StopProcess, commands)] == [0, 1, 2]
    story.passes(SLOTS_RETURN_MS / 1000)
    assert len(story.given(ReleaseSlots)) == 1


def test_after_the_requested_iterations_the_exit_code_does_not_matter(tell: Tell) -> None:
    """A script that does not catch ``paceline.Stopped`` ends with an exception there."""
    story = running(tell, stop={"iterations": 3})
    for rank in range(3):
        story.done(rank, 3)
    assert story.state is JobState.FINISHING
    for rank in range(3):
        ends(story, rank, 1)
    assert (story.state, story.given(StopProcess)) == (JobState.SUCCEEDED, [])
    assert story.given(MoveJob)[-1].reason == (
        "3 iterations were requested; w0 ended with status 1; 3 iterations were done"
    )


def test_a_rank_that_fails_before_the_requested_iterations_fails_the_job(tell: Tell) -> None:
    story = running(tell, stop={"iterations": 4})
    story.report(0, 3)
    story.done(0, 4)
    for rank in range(3):
        ends(story, rank, 7 if rank == 1 else 0)
    assert story.state is JobState.FAILED


def test_nobody_else_reports_its_exit_code(tell: Tell) -> None:
    story = running(tell)
    declined = story.declined(LauncherEnded(actor="launcher", exit_code=0))
    assert declined == "job 7: finish by launcher, but Paceline's agents start its script"
    assert story.state is JobState.RUNNING


def test_the_end_of_an_earlier_process_is_refused(tell: Tell) -> None:
    story = running(tell)
    with pytest.raises(EventRefused, match="it is not a live process"):
        story.see(ProcessDied(role="worker", index=1, instance="w1.9.9", status=3))
    assert story.state is JobState.RUNNING


def test_a_new_incarnation_orders_its_live_processes_again(tell: Tell) -> None:
    story = running(tell)
    before = started(story)
    ends(story, 2)
    commands = story.see(IncarnationBegan(incarnation=1, after="5-0", reason="a part of the log was lost"))
    assert {each.index: each.instance for each in of(StartProcess, commands)} == {0: before[0], 1: before[1]}
    assert [each.index for each in of(StopProcess, commands)] == [2]


def test_a_job_without_a_command_takes_no_slots(tell: Tell) -> None:
    story = tell().submitted()
    with pytest.raises(EventRefused, match="slots were assigned, but its launcher starts its ranks"):
        story.see(SlotsAssigned(assignments=SLOTS[:2]))


def test_the_hello_of_a_rank_says_who_started_it(tell: Tell) -> None:
    story = ordered(tell)
    hello: RankHello = story.a_hello(0, launcher="agent")
    story.comes(0, launcher="agent")
    assert story.job.workers[0].environment["launcher"] == hello.launcher == "agent"
