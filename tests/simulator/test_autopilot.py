"""An autopilot in the simulator: the live engine's decisions, on simulations of what was seen."""

from msgspec.structs import replace

from controlplane.core.commands import ChangePolicies, JudgeAlternatives, MeasureSwitch, PlayAlternatives
from controlplane.policies.registry import resolve
from controlplane.protocol.autopilot import Autopilot
from controlplane.protocol.spec import Choice, Stop, Synchronization
from controlplane.simulator.autopilot import play_alternatives
from controlplane.simulator.control import Recording
from controlplane.simulator.replay import decided, replay
from controlplane.simulator.running import simulate
from tests.simulator.worlds import spec, world

EMA = "lb-bsp-cpu with ema, bsp"


def flown(**changes: object) -> Recording:
    recording = Recording(keep=True)
    job = replace(spec(stop=Stop(iterations=90)), autopilot=Autopilot(**changes))
    simulate(world(spec=job), "bsp", recording=recording)
    return recording


def test_it_finds_the_balanced_shares_of_unequal_machines_and_measures_what_they_save() -> None:
    recording = flown()
    judged = [command for command in recording.commands if isinstance(command, JudgeAlternatives)]
    assert judged[0].switches
    assert {row.name for row in judged[0].rows} == {EMA, "lb-bsp-linear, bsp"}
    (measured,) = [command for command in recording.commands if isinstance(command, MeasureSwitch)]
    assert measured.kept
    gain = 1 - measured.after_s / measured.before_s
    assert abs(gain - measured.predicted) < 0.05
    assert gain > 0.5


def test_a_replay_needs_no_simulation_and_decides_the_same() -> None:
    recording = flown()
    assert any(isinstance(command, ChangePolicies) for command in recording.commands)
    kept = [decided(command) for command in recording.commands if "issue" not in str(command.__struct_config__.tag)]
    kept = [each for each in kept if each.kind != "reject-message"]
    found = replay(recording.entries, kept, job=1, resolve=resolve, is_over=True)
    assert found.difference is None


def test_a_barrier_is_chosen_only_where_the_spec_names_it() -> None:
    (first, *_) = [c for c in flown().commands if isinstance(c, PlayAlternatives)]
    assert {other.barrier.name for other in first.alternatives.values()} == {"bsp"}
    (first, *_) = [c for c in flown(barriers=(Choice(name="asp"),)).commands if isinstance(c, PlayAlternatives)]
    assert "uniform, asp" in first.alternatives


def test_of_too_few_reports_nothing_is_simulated_and_the_event_reports_why() -> None:
    command = PlayAlternatives(
        cause="1-0", reason="so", look=1, present="even", alternatives={"even": Synchronization()}, since=80
    )
    answer = play_alternatives(1, spec(), flown().entries, command)
    assert answer.played == []
    assert "10 are needed: let the job run for longer" in answer.reason
