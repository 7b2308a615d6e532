"""Workers in step, as arrays, answer to the byte as the same workers do event by event, which is the oracle here."""

from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from controlplane.policies import registry
from controlplane.protocol.spec import Checkpointing, Elastic, Stop
from controlplane.simulator.background import Background, Competitor
from controlplane.simulator.cluster import Cluster
from controlplane.simulator.control import ControlPlane, Recording
from controlplane.simulator.disturbances import Wavering
from controlplane.simulator.machines import (
    CompetingMachine,
    CpuMachine,
    GpuMachine,
    MachineSpec,
    SharedMachine,
    SlowPeriod,
)
from controlplane.simulator.network import Link, LinkChange, ServerSpec
from controlplane.simulator.outcome import Outcome, outcome_of
from controlplane.simulator.scenario import Group, Happening, Scenario, chosen
from tests.simulator.worlds import spec, world
from tests.support.examples import examples

POLICIES = [*registry.names("barrier"), "lb-bsp-linear", "lb-bsp-linear+ssp"]

MACHINES = st.one_of(
    st.builds(
        CpuMachine,
        samples_per_second=st.sampled_from([50.0, 64.0, 100.0]),
        slow=st.sampled_from([(), (SlowPeriod(times=3.0, from_s=4.0, until_s=8.0),)]),
    ),
    st.builds(GpuMachine, launch_s=st.just(0.01), seconds_per_sample=st.just(0.01), memory_samples=st.just(500)),
    st.builds(SharedMachine, samples_per_second=st.just(80.0), background=st.just(Background())),
    st.builds(CompetingMachine, samples_per_second=st.just(80.0), competitor=st.just(Competitor(cpu=0.5))),
)

LINKS = st.sampled_from(
    [
        Link(),
        Link(),
        Link(latency_s=0.002),
        Link(bytes_per_s=1e6, latency_s=0.001, changes=(LinkChange(bytes_per_s=2e5, from_iteration=4),)),
        Link(recorded_s=(0.01, 0.02, 0.03)),
    ]
)


@st.composite
def happenings(draw: Any, workers: int) -> tuple[Happening, ...]:
    """A few, at any time of a run of some ten seconds."""
    kinds = st.sampled_from(["crash", "vanish", "leave", "exclude", "drain", "crash of a server"])
    found = []
    for kind in draw(st.lists(kinds, max_size=2)):
        at_s = draw(st.floats(min_value=0.1, max_value=12.0))
        if kind == "crash of a server":
            found.append(Happening(kind="crash", role="server", index=draw(st.integers(0, 1)), at_s=at_s))
        else:
            found.append(Happening(kind=kind, index=draw(st.integers(0, workers - 1)), at_s=at_s))
    return tuple(sorted(found, key=lambda happening: happening.at_s))


@st.composite
def scenarios(draw: Any) -> Scenario:
    """Jobs of 2 to 12 workers, alike or not, with whatever may come between."""
    workers = draw(st.integers(2, 12))
    same: MachineSpec | None = draw(st.none() | MACHINES)
    groups = tuple(Group(count=1, machine=same or draw(MACHINES), link=draw(LINKS)) for _ in range(workers))
    job = spec(
        workers=workers,
        stop=Stop(iterations=draw(st.integers(1, 25))),
        elastic=Elastic(minimum_workers=1, restarts=draw(st.integers(0, 2))),
        checkpoint=draw(st.sampled_from([None, None, Checkpointing(every=5)])),
    )
    return world(
        spec=job,
        groups=groups,
        wavering=draw(st.sampled_from([Wavering(), Wavering(noise=0.1), Wavering(noise=0.2, spikes=0.1)])),
        control=draw(st.sampled_from([ControlPlane(), ControlPlane(decision_s=0.0005), ControlPlane(latency_s=0.003)])),
        servers=draw(st.sampled_from([ServerSpec(), ServerSpec(), ServerSpec(bytes_per_s=1e7)])),
        happenings=draw(happenings(workers)),
        horizon_s=draw(st.sampled_from([1e4, 7.5])),
    )


def played(scenario: Scenario, policy: str, seed: int, *, in_step: int | None) -> tuple[Outcome, list[str]]:
    """The outcome with the digest of the log and of all commands, and what the engine refused."""
    recording = Recording(keep=False)
    cluster = Cluster(scenario, chosen(scenario, policy), seed=seed, recording=recording, in_step=in_step)
    cluster.run()
    return outcome_of(cluster, policy, seed, recording.digest), cluster.driver.refused


@settings(max_examples=examples(60), deadline=None)
@given(scenario=scenarios(), policy=st.sampled_from(["bsp", "bsp", *POLICIES]), seed=st.integers(0, 3))
def test_in_step_or_one_by_one_the_engine_is_asked_and_answers_to_the_byte_alike(
    scenario: Scenario, policy: str, seed: int
) -> None:
    one_by_one = played(scenario, policy, seed, in_step=None)
    event(f"{one_by_one[0].state}")
    assert played(scenario, policy, seed, in_step=1) == one_by_one
