"""A process that ended is started again: when, how often, and where."""

from controlplane.core.commands import MoveJob, MoveProcess, RaiseFlag, Restart, SetRoster, StartProcess
from controlplane.core.events import Assignment, ControlPlaneResumed, SlotsAssigned
from tests.core.story import WORKERS_AGENT, of


def started(commands):
    return [(c.instance, c.agent, c.slot) for c in of(StartProcess, commands)]


def test_dead_worker_is_shown_as_restarting_and_when(story):
    told = story().running()
    (moved,) = of(MoveProcess, told.kill(1))
    assert (moved.state, moved.reason) == ("lost", "was ended by signal 9; restart 1 of 3 in 0.5 s")
    assert moved.restart == Restart(number=1, allowed=3, at_ms=told.now_ms + 500)


def test_it_returns_to_its_slot_when_its_pause_is_over(story):
    told = story().running()
    told.kill(1)
    assert told.engine.deadline_ms == told.now_ms + 500
    assert started(told.tick(after_ms=499)) == []
    assert started(told.tick(after_ms=1)) == [("w1.0.2", WORKERS_AGENT, 1)]


def test_pauses_double_and_the_last_restart_is_the_last(story):
    told = story().running()
    pauses = []
    for _ in range(3):
        restart = of(MoveProcess, told.kill(1))[0].restart
        pauses.append(restart.at_ms - told.now_ms)
        told.tick(after_ms=pauses[-1])
        told.hello(1)
    (moved,) = of(MoveProcess, told.kill(1))
    assert pauses == [500, 1000, 2000]
    assert moved.reason == "was ended by signal 9; it was started again 3 times, the maximum"
    assert told.given(MoveJob)[-1].state == "running"


def test_the_maximum_of_one_restart_is_worded_in_the_singular(story):
    told = story(elastic={"restarts": 1}).running()
    told.kill(1)
    told.tick(after_ms=500)
    told.hello(1)
    (moved,) = of(MoveProcess, told.kill(1))
    assert moved.reason == "was ended by signal 9; it was started again once, the maximum"


def test_ten_minutes_of_uptime_reset_the_count_of_restarts(story):
    told = story().running()
    told.kill(1)
    told.tick(after_ms=500)
    told.hello(1)
    told.tick(after_ms=600_001)
    assert of(MoveProcess, told.kill(1))[0].restart.number == 1


def test_worker_whose_machine_is_away_waits_for_another_slot(story):
    told = story().running()
    (moved,) = of(MoveProcess, told.kill(1, is_agent_lost=True))
    assert moved.reason.endswith("restart 1 of 3 waits for a free worker slot: its machine is unreachable")
    assert started(told.tick(after_ms=1_000)) == []
    other = Assignment(role="worker", index=1, agent=9, slot=4)
    assert started(told.see(SlotsAssigned(assignments=[other]))) == [("w1.0.2", 9, 4)]


def test_worker_whose_machine_is_lost_is_shown_as_lost_with_it(story):
    """No one knows how such a process ended: the number that stands for that is no signal."""
    detail = "its machine has been out of reach for more than 10 s"
    (moved,) = of(MoveProcess, story().running().kill(1, status=-1, detail=detail, is_agent_lost=True))
    assert moved.reason.startswith(f"was lost: {detail}; restart 1 of 3")


def test_a_lost_machine_is_distinguished_from_a_lost_process(story):
    told = story(elastic={"minimum_workers": 2}).running()
    commands = told.tick(after_ms=4_500, away=[WORKERS_AGENT])
    assert {move.restart.wants_slot for move in of(MoveProcess, commands)} == {True}
    assert told.given(MoveJob)[-1].reason == "no workers are available, at least 2 are needed"
    assert told.given(MoveJob)[-1].awaited == "more workers: w0, w1, w2, w3"


def test_crash_before_the_beginning_is_tried_again_but_an_error_is_not(story):
    told = story().starting()
    assert of(MoveProcess, told.kill(1))[0].restart.number == 1
    assert told.given(MoveJob)[-1].state == "starting"
    assert of(MoveJob, told.kill(2, status=1))[0].state == "failed"


def test_worker_that_may_not_return_leaves_the_job_to_the_others(story):
    told = story(elastic={"restarts": 0}).running()
    commands = told.kill(3)
    assert of(SetRoster, commands)[0].ranks == [0, 1, 2]
    assert of(MoveProcess, commands)[0].restart is None


def test_too_few_workers_with_none_to_come_end_the_job(story):
    told = story(elastic={"restarts": 0, "minimum_workers": 4}).running()
    (moved,) = of(MoveJob, told.kill(3))
    assert (moved.state, moved.reason) == ("failed", "w3 was ended by signal 9; 3 workers are left, 4 are needed")


def test_flag_of_the_dead_reports_how_it_ended(story):
    told = story().running()
    assert of(RaiseFlag, told.kill(1))[0].reason == "w1 was ended by signal 9"


def test_an_outage_of_the_control_plane_marks_no_machine_offline(story):
    told = story().running()
    told.kill(1)
    told.see(ControlPlaneResumed(who="gateway"))
    commands = told.tick(after_ms=600, away=[WORKERS_AGENT])
    assert started(commands) == [("w1.0.2", WORKERS_AGENT, 1)]


def test_the_restart_delay_doubles_only_after_short_uptimes(story):
    told = story(elastic={"restarts": 10}).running()
    pauses = []
    for lived_ms in (1, 1, 1, 10_000, 1):
        told.now_ms += lived_ms
        told.kill(1)
        revival = told.engine._job.starts.revivals["w1"]
        pauses.append(revival.due_ms - told.now_ms)
        told.tick(after_ms=pauses[-1])
    assert pauses == [500, 1_000, 2_000, 500, 1_000]
