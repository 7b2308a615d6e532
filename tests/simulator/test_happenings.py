"""Processes that end in the middle of a job."""

import pytest

from controlplane.core.commands import MoveProcess, SetRoster
from controlplane.protocol.spec import Stop
from controlplane.simulator.control import Recording
from controlplane.simulator.errors import ScenarioError, Stuck
from controlplane.simulator.machines import CpuMachine
from controlplane.simulator.running import simulate
from controlplane.simulator.scenario import Group, Happening
from tests.simulator.worlds import machines, spec, world


def rosters(recording: Recording) -> list[list[int]]:
    return [command.ranks for command in recording.commands if isinstance(command, SetRoster)]


@pytest.mark.parametrize("policy", ["bsp", "lb-bsp", "asp", "ssp", "pssp", "aggressive", "backup"])
@pytest.mark.parametrize("kind", ["crash", "leave", "vanish"])
def test_the_others_go_on_without_a_worker_that_is_gone(policy: str, kind: str) -> None:
    recording = Recording(keep=True)
    scenario = world(happenings=(Happening(kind=kind, at_s=1.0, index=0),))
    outcome = simulate(scenario, policy, recording=recording)
    assert outcome.state == "succeeded"
    assert outcome.progress[0] < max(outcome.progress)
    if outcome.seconds > 6.0:
        assert rosters(recording) == [[0, 1, 2, 3], [1, 2, 3]]


def test_an_agent_says_at_once_what_silence_says_after_four_seconds() -> None:
    def noticed_s(kind: str) -> float:
        recording = Recording(keep=True)
        simulate(world(happenings=(Happening(kind=kind, at_s=1.0, index=0),)), "bsp", recording=recording)
        dead = next(c for c in recording.commands if isinstance(c, MoveProcess) and c.state == "dead")
        return (int(dead.cause.partition("-")[0]) - 1_000_000) / 1000 - 1.0

    assert noticed_s("crash") == pytest.approx(0.05, abs=0.002)
    assert noticed_s("vanish") == pytest.approx(4.0, abs=0.3)


def test_a_job_without_a_server_fails_and_says_why() -> None:
    outcome = simulate(world(happenings=(Happening(kind="crash", at_s=1.0, index=1, role="server"),)), "bsp")
    assert (outcome.state, outcome.iterations) == ("failed", 4)
    assert "s1 was ended by signal 9" in outcome.why


def test_a_job_begins_when_the_last_process_says_hello() -> None:
    slow = Group(count=1, machine=CpuMachine(samples_per_second=64.0), starts_s=7.0)
    scenario = world(spec=spec(workers=2, stop=Stop(iterations=3)), groups=(*machines(64.0), slow))
    assert simulate(scenario, "bsp").seconds == pytest.approx(3.0)


def test_a_simulation_that_cannot_go_on_says_who_waits_for_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    # A worker that lives and does nothing: no policy helps, and without an end every deadline is followed by another.
    monkeypatch.setattr("controlplane.simulator.workers.SimulatedWorker._computed", lambda *_: None)
    monkeypatch.setattr("controlplane.simulator.workers.SimulatedWorker._pushed", lambda *_: None)
    with pytest.raises(Stuck, match=r"small: nothing can happen any more at .* s, and the job is running: w0 w1 .*"):
        simulate(world(), "bsp")


def test_a_worker_in_vain_is_named() -> None:
    scenario = world(happenings=(Happening(kind="crash", at_s=1.0, index=9),))
    with pytest.raises(ScenarioError, match=r"happenings\[0\]: found 'worker 9', expected an index below 4"):
        simulate(scenario, "bsp")
