"""One log, two drivers: the engine as the live coordinator runs it and as the simulator does give the same commands."""

import pytest

from controlplane.core.commands import AnyCommand
from controlplane.core.events import Entry
from controlplane.policies.registry import resolve
from controlplane.protocol.spec import Choice, Synchronization
from controlplane.runtime.engines import RealEngines, Running
from controlplane.runtime.executor import JobFacts
from controlplane.simulator.cluster import Cluster
from controlplane.simulator.control import ControlPlane, Driver, Recording
from controlplane.simulator.disturbances import Wavering
from controlplane.simulator.kernel import Kernel
from controlplane.simulator.scenario import Happening, chosen
from tests.core.story import Story
from tests.simulator.worlds import spec, world

POLICIES = ["uniform+bsp", "lb-bsp-linear", "asp", "ssp", "pbsp", "pssp", "aggressive", "backup", "lb-bsp"]


FACTS = JobFacts(number=1, key=bytes(32), spec=spec())
"""The engine looks at none of it."""


def as_live(entries: list[Entry]) -> list[AnyCommand]:
    """What the live coordinator's engine says, restored from a snapshot half way, as after a crash."""
    kind = RealEngines()
    running = Running(kind.new(1), FACTS)
    middle = len(entries) // 2
    commands = [command for entry in entries[:middle] for command in running.handle(entry)]
    running = Running(kind.restore(running.engine.snapshot()), FACTS)
    return commands + [command for entry in entries[middle:] for command in running.handle(entry)]


def as_simulated(entries: list[Entry]) -> list[AnyCommand]:
    """What the simulator's driver says to the same entries."""
    driver = Driver(Kernel(), resolve, ControlPlane(), recording=None)
    return [command for entry in entries for command in driver.take(entry)]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_simulated_log_is_answered_alike_by_the_live_driver(policy: str) -> None:
    recording = Recording(keep=True)
    scenario = world(
        wavering=Wavering(noise=0.2, spikes=0.05),
        control=ControlPlane(latency_s=0.003, decision_s=0.0002),
        happenings=(
            Happening(kind="crash", at_s=2.0, index=2),
            Happening(kind="crash", at_s=3.0, index=1, role="server"),
            Happening(kind="vanish", at_s=4.0, index=1),
        ),
    )
    Cluster(scenario, chosen(scenario, policy), seed=5, recording=recording).run()
    assert len(recording.entries) > 100
    assert as_live(recording.entries) == recording.commands == as_simulated(recording.entries)


def test_a_recorded_live_log_is_answered_alike_by_the_simulators_driver() -> None:
    batching = {"name": "lb-bsp-cpu", "predictor": "memoryless"}
    story = Story(synchronization={"batching": batching}, stop={"iterations": 30}).running()
    story.iterate(12, speeds={0: 1000.0, 1: 1000.0, 2: 500.0, 3: 250.0})
    story.kill(3)
    story.iterate(8, speeds={0: 1000.0, 1: 900.0, 2: 500.0}, start=12)
    story.tick(after_ms=5000, silent=frozenset({1}))
    assert as_live(story.entries) == as_simulated(story.entries)
    assert len(as_live(story.entries)) > len(story.entries)


def test_an_event_that_has_no_place_is_refused_by_both_and_changes_nothing() -> None:
    story = Story().running()
    again = Entry(id=f"{story.now_ms + 1}-0", event=story.entries[0].event)
    driver = Driver(Kernel(), resolve, ControlPlane(), recording=None)
    for entry in [*story.entries, again]:
        driver.take(entry)
    assert driver.refused == ["job 1: submitted twice"]
    assert as_live([*story.entries, again]) == as_live(story.entries)


def test_the_choice_of_policies_is_what_the_engine_runs() -> None:
    scenario = world()
    assert chosen(scenario, "lb-bsp-linear+ssp") == Synchronization(
        batching=Choice(name="lb-bsp-linear"), barrier=Choice(name="ssp")
    )
