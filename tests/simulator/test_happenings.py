"""Processes that end in the middle of a job."""

from typing import Literal

import pytest

from controlplane.core.commands import IssuePlacement, MoveProcess, SetRoster
from controlplane.core.events import WorkerMessageReceived
from controlplane.protocol.messages import IterationReport
from controlplane.protocol.spec import Elastic, Stop
from controlplane.simulator.control import BEGIN_MS, Recording
from controlplane.simulator.errors import ScenarioError, Stuck
from controlplane.simulator.machines import CpuMachine
from controlplane.simulator.running import simulate
from controlplane.simulator.scenario import Group, Happening
from tests.simulator.worlds import machines, spec, world


def rosters(recording: Recording) -> list[list[int]]:
    return [command.ranks for command in recording.commands if isinstance(command, SetRoster)]


def reported(recording: Recording) -> list[tuple[int, float]]:
    """Who ended an iteration when."""
    return [
        (entry.event.rank, (entry.at_ms - BEGIN_MS) / 1000)
        for entry in recording.entries
        if isinstance(entry.event, WorkerMessageReceived) and isinstance(entry.event.message, IterationReport)
    ]


@pytest.mark.parametrize("policy", ["bsp", "lb-bsp", "asp", "ssp", "pssp", "aggressive", "backup"])
@pytest.mark.parametrize("kind", ["crash", "leave", "vanish"])
def test_the_others_continue_without_a_worker_that_is_gone(policy: str, kind: str) -> None:
    recording = Recording(keep=True)
    scenario = world(happenings=(Happening(kind=kind, at_s=1.0, index=0),))
    outcome = simulate(scenario, policy, recording=recording)
    assert outcome.state == "succeeded"
    assert outcome.progress[0] < max(outcome.progress)
    if outcome.seconds > 6.0:
        assert rosters(recording)[:2] == [[0, 1, 2, 3], [1, 2, 3]]


@pytest.mark.parametrize("policy", ["bsp", "lb-bsp", "asp", "ssp"])
def test_a_worker_that_crashed_is_started_again_and_counts_again(policy: str) -> None:
    recording = Recording(keep=True)
    scenario = world(stop=Stop(iterations=80), happenings=(Happening(kind="crash", at_s=1.0, index=2),))
    outcome = simulate(scenario, policy, recording=recording)
    assert outcome.state == "succeeded"
    assert rosters(recording) == [[0, 1, 2, 3], [0, 1, 3], [0, 1, 2, 3]]
    assert sum(outcome.shares) == 256 or policy in ("asp", "ssp")


@pytest.mark.parametrize("policy", ["bsp", "asp", "backup"])
@pytest.mark.parametrize("kind", ["crash", "vanish"])
def test_a_job_outlives_the_end_of_all_its_workers_at_once(policy: str, kind: Literal["crash", "vanish"]) -> None:
    recording = Recording(keep=True)
    ends = tuple(Happening(kind=kind, at_s=1.0, index=rank) for rank in range(4))
    outcome = simulate(world(stop=Stop(iterations=120), happenings=ends), policy, recording=recording)
    assert outcome.state == "succeeded"
    assert rosters(recording)[-1] == [0, 1, 2, 3]


def test_who_leaves_does_not_come_back() -> None:
    recording = Recording(keep=True)
    happenings = (Happening(kind="leave", at_s=1.0, index=2),)
    simulate(world(stop=Stop(iterations=80), happenings=happenings), "bsp", recording=recording)
    assert rosters(recording) == [[0, 1, 2, 3], [0, 1, 3]]


@pytest.mark.parametrize("policy", ["bsp", "lb-bsp", "asp", "pssp"])
def test_a_machine_that_joins_a_running_job_takes_its_part(policy: str) -> None:
    recording = Recording(keep=True)
    late = Group(count=1, machine=CpuMachine(samples_per_second=1000.0), joins_s=15.0)
    job = spec(workers=3, stop=Stop(iterations=120), elastic=Elastic(minimum_workers=2))
    outcome = simulate(world(spec=job, groups=(*machines(500.0, 500.0), late)), policy, recording=recording)
    assert outcome.state == "succeeded"
    assert rosters(recording) == [[0, 1], [0, 1, 2]]
    assert outcome.progress[2] > 0


@pytest.mark.parametrize("policy", ["bsp", "asp", "aggressive"])
@pytest.mark.parametrize("kind", ["exclude", "drain"])
def test_a_worker_that_is_left_out_does_nothing_until_it_is_included(
    policy: str, kind: Literal["exclude", "drain"]
) -> None:
    asked = (Happening(kind=kind, at_s=4.0, index=3), Happening(kind="include", at_s=16.0, index=3))
    for happenings, expected in ((asked[:1], 2), (asked, 3)):
        recording = Recording(keep=True)
        outcome = simulate(world(stop=Stop(seconds=32.0), happenings=happenings), policy, recording=recording)
        assert outcome.state == "succeeded"
        assert rosters(recording) == [[0, 1, 2, 3], [0, 1, 2], [0, 1, 2, 3]][:expected]
        reports = [at_s for rank, at_s in reported(recording) if rank == 3]
        assert not [at_s for at_s in reports if 14.0 < at_s < 17.0], "its process has ended"
        assert (max(reports) > 17.0) == (len(happenings) == 2)


def test_a_server_that_is_drained_hands_its_blocks_over_and_ends() -> None:
    recording = Recording(keep=True)
    drained = (Happening(kind="drain", at_s=4.0, index=1, role="server"),)
    outcome = simulate(world(happenings=drained), "bsp", recording=recording)
    assert (outcome.state, outcome.iterations) == ("succeeded", 40)
    placed = [command for command in recording.commands if isinstance(command, IssuePlacement) and command.rank == 0]
    assert {block.server for block in placed[-1].blocks} == {0}


def test_what_operators_cannot_request_is_refused() -> None:
    shut_out = (Happening(kind="exclude", at_s=1.0, index=0, role="server"),)
    with pytest.raises(
        ScenarioError, match=r"happenings\[0\]: found 'a server to exclude', expected drain: a server le"
    ):
        simulate(world(happenings=shut_out), "bsp")


def test_machines_that_join_come_last_and_enough_are_there_from_the_beginning() -> None:
    late = Group(count=1, machine=CpuMachine(samples_per_second=1000.0), joins_s=3.0)
    with pytest.raises(ScenarioError, match=r"groups: found '1 machines that join later', expected spec.elastic.min"):
        simulate(world(spec=spec(workers=3), groups=(*machines(500.0, 500.0), late)), "bsp")
    with pytest.raises(ScenarioError, match="expected those that join as the last"):
        simulate(world(spec=spec(workers=2), groups=(late, *machines(500.0))), "bsp")


def test_an_agent_reports_an_end_before_missing_heartbeats_would() -> None:
    def noticed_s(kind: str) -> float:
        recording = Recording(keep=True)
        simulate(world(happenings=(Happening(kind=kind, at_s=1.0, index=0),)), "bsp", recording=recording)
        dead = next(c for c in recording.commands if isinstance(c, MoveProcess) and c.state == "lost")
        return (int(dead.cause.partition("-")[0]) - 1_000_000) / 1000 - 1.0

    assert noticed_s("crash") == pytest.approx(0.05, abs=0.002)
    assert noticed_s("vanish") == pytest.approx(4.0, abs=0.3)


def test_a_job_without_a_server_fails_and_reports_why() -> None:
    crash = (Happening(kind="crash", at_s=1.0, index=0, role="server"),)
    outcome = simulate(world(happenings=crash, spec=spec(elastic=Elastic(restarts=0))), "bsp")
    assert (outcome.state, outcome.iterations) == ("failed", 3), "the fourth update came 24 ms after the crash"
    assert "s0 was ended by signal 9" in outcome.why


def test_a_job_begins_when_the_last_process_sends_a_hello() -> None:
    slow = Group(count=1, machine=CpuMachine(samples_per_second=64.0), starts_s=7.0)
    scenario = world(warm_up=0, spec=spec(workers=2, stop=Stop(iterations=3)), groups=(*machines(64.0), slow))
    assert simulate(scenario, "bsp").seconds == pytest.approx(3.0)


def test_a_simulation_that_cannot_continue_reports_who_waits_for_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    # A worker that lives and does nothing: no policy helps, and without an end every deadline is followed by another.
    monkeypatch.setattr("controlplane.simulator.workers.SimulatedWorker._computed", lambda *_: None)
    monkeypatch.setattr("controlplane.simulator.workers.SimulatedWorker.pushed", lambda *_: None)
    told = r"small: no further event can happen at .* s, and the job is running \(4 workers .* are ready\): w0 w1 .*"
    with pytest.raises(Stuck, match=told):
        simulate(world(), "bsp")


def test_a_worker_in_vain_is_named() -> None:
    scenario = world(happenings=(Happening(kind="crash", at_s=1.0, index=9),))
    with pytest.raises(ScenarioError, match=r"happenings\[0\]: found 'worker 9', expected an index below 4"):
        simulate(scenario, "bsp")
