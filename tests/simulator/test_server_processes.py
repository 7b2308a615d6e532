"""Servers that crash, are started again, and are asked for while the job runs."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.core.commands import KeepCheckpoint, RefillBlocks, RollBack
from controlplane.core.events import WorkerMessageReceived
from controlplane.protocol.messages import IterationReport
from controlplane.protocol.spec import Checkpointing, Choice, Optimizer, Stop, Synchronization
from controlplane.simulator.cluster import Cluster
from controlplane.simulator.control import Recording
from controlplane.simulator.errors import ScenarioError
from controlplane.simulator.network import ServerSpec
from controlplane.simulator.numerics.settings import Numerics
from controlplane.simulator.numerics.settings import Optimizer as Memory
from controlplane.simulator.outcome import Outcome
from controlplane.simulator.running import play, simulate
from controlplane.simulator.scenario import Happening, Scenario
from tests.simulator.worlds import alike, machines, spec, world
from tests.support.examples import examples

CRASH = (Happening(kind="crash", at_s=2.0, index=0, role="server"),)
MEBI = 2**20
MOMENTUM = Optimizer(name="sgd", momentum=0.9)
"""Servers remember more than workers pull: a checkpoint is worth more than a copy."""


def rollbacks(scenario: Scenario, policy: str) -> tuple[Outcome, list[int], list[int]]:
    recording = Recording(keep=True)
    outcome = simulate(scenario, policy, recording=recording)
    back = [command.to_iteration for command in recording.commands if isinstance(command, RollBack)]
    kept = [command.iteration for command in recording.commands if isinstance(command, KeepCheckpoint)]
    return outcome, back, kept


def lost_and_calm(policy: str, **changes: Any) -> tuple[Cluster, list[RefillBlocks], Cluster]:
    """A run whose server 0 crashes, what it was filled with, and the same run undisturbed."""
    recording = Recording(keep=True)
    mathematics = Numerics(problem="logistic-regression")
    told = play(world(numerics=mathematics, happenings=CRASH, **changes), policy, recording=recording)
    refills = [command for command in recording.commands if isinstance(command, RefillBlocks)]
    assert not any(isinstance(command, RollBack) for command in recording.commands)
    return told, refills, play(world(numerics=mathematics, **changes), policy)


@pytest.mark.parametrize("policy", ["bsp", "lb-bsp"])
def test_a_lost_server_is_filled_with_a_workers_copy_and_nothing_is_done_again(policy: str) -> None:
    told, (refill,), calm = lost_and_calm(policy)
    assert (told.driver.state, refill.servers) == ("succeeded", [0])
    assert refill.took_s == pytest.approx(2.5, abs=0.1), "half a second's pause, and 2 s to start"
    assert told.servers.updates == calm.servers.updates
    assert told.now > calm.now + 2.0, "what was computed meanwhile is not lost"
    assert told.mathematics is not None
    assert calm.mathematics is not None
    assert told.mathematics.problem.score(told.mathematics.parameters) == pytest.approx(
        calm.mathematics.problem.score(calm.mathematics.parameters), rel=1e-9
    )


@pytest.mark.parametrize("policy", ["asp", "ssp", "pssp"])
def test_without_lockstep_the_lost_blocks_alone_go_back_to_what_a_worker_had(policy: str) -> None:
    told, (refill,), _ = lost_and_calm(policy)
    assert told.driver.state == "succeeded"
    assert refill.reason.endswith("updates that no worker had pulled are lost")
    assert told.now - told.began_s > 2.5


def test_a_server_that_is_lost_while_it_is_filled_is_filled_anew() -> None:
    again = (*CRASH, Happening(kind="crash", at_s=4.0, index=0, role="server"))
    scenario = world(happenings=again)
    recording = Recording(keep=True)
    cluster = play(scenario, "bsp", recording=recording)
    assert cluster.driver.state == "succeeded"
    assert len([command for command in recording.commands if isinstance(command, RefillBlocks)]) == 1
    assert cluster.servers.version == 40


def test_servers_that_are_lost_while_the_last_worker_ends_return_for_its_update() -> None:
    """A deadline that has passed once does not keep time from passing."""
    crashes = tuple(
        Happening(kind="crash", at_s=3.6131594295877054 + 0.1 * n, index=index, role="server")
        for n, index in enumerate((1, 0))
    )
    cluster = play(world(happenings=crashes), "asp")
    assert (cluster.driver.state, cluster.servers.updates, cluster.refills.is_whole) == ("succeeded", 160, True)


@given(
    at_s=st.floats(0.0, 8.0),
    policy=st.sampled_from(["bsp", "lb-bsp", "asp", "ssp", "aggressive"]),
    bandwidth=st.sampled_from([None, 2e5]),
    servers=st.sampled_from([(0,), (1, 0)]),
)
@settings(max_examples=examples(20), deadline=None)
def test_whenever_servers_crash_the_job_comes_to_its_end(
    at_s: float, policy: str, bandwidth: float | None, servers: tuple[int, ...]
) -> None:
    crashes = tuple(
        Happening(kind="crash", at_s=at_s + 0.1 * n, index=index, role="server") for n, index in enumerate(servers)
    )
    scenario = world(happenings=crashes, servers=ServerSpec(bytes_per_s=bandwidth))
    cluster = play(scenario, policy)
    assert cluster.driver.state == "succeeded", cluster.driver.why
    assert cluster.servers.updates == 160
    assert cluster.refills.is_whole


@pytest.mark.parametrize("policy", ["bsp", "lb-bsp", "aggressive"])
def test_iterations_since_the_checkpoint_are_done_again_on_the_same_samples(policy: str) -> None:
    job = spec(stop=Stop(iterations=40), checkpoint=Checkpointing(every=5), optimizer=MOMENTUM)
    numerics = Numerics(problem="logistic-regression", optimizer=Memory(momentum=0.9))
    calm = world(spec=job, numerics=numerics)
    told, back, kept = rollbacks(world(spec=job, numerics=calm.numerics, happenings=CRASH), policy)
    undisturbed = simulate(calm, policy)
    assert told.state == "succeeded"
    assert back == [max(iteration for iteration in kept if iteration <= back[0])]
    assert told.loss == pytest.approx(undisturbed.loss, rel=1e-9)
    assert told.seconds > undisturbed.seconds + 2.5, "processes take 2 s to start, after half a second's pause"


def test_without_lockstep_all_workers_quiesce_for_a_checkpoint_and_return_to_it() -> None:
    job = spec(stop=Stop(iterations=60), checkpoint=Checkpointing(every=6))
    outcome, back, kept = rollbacks(world(spec=job, happenings=CRASH), "ssp")
    assert outcome.state == "succeeded"
    assert len(back) == 1
    assert back[0] in kept


def test_a_slow_disk_makes_the_way_back_longer() -> None:
    def seconds(disk: float | None) -> float:
        job = spec(stop=Stop(iterations=40), checkpoint=Checkpointing(every=2), optimizer=MOMENTUM)
        server = ServerSpec(disk_bytes_per_s=disk)
        scenario = world(spec=job, servers=server, tensor_sizes=(MEBI, 3 * MEBI), happenings=CRASH)
        return simulate(scenario, "bsp").seconds

    assert seconds(16 * MEBI) > seconds(None) + 0.45, "half a second to read what each server had written"


def test_a_server_on_a_machine_that_is_lost_waits_for_one_that_no_one_looks_for() -> None:
    vanish = (Happening(kind="vanish", at_s=1.0, index=0, role="server"),)
    with pytest.raises(ScenarioError, match=r"happenings\[0\]: found 'a server that vanishes.*expected crash or leave"):
        simulate(world(happenings=vanish), "bsp")


def slow_servers(spare: int) -> Scenario:
    """Two servers of three have a tenth of the bandwidth."""
    placed = Synchronization(placement=Choice(name="psld", parameters={"every": 3, "block_bytes": MEBI}))
    usual, slow = ServerSpec(bytes_per_s=40.0 * MEBI), ServerSpec(bytes_per_s=4.0 * MEBI)
    return world(
        spec=spec(workers=2, servers=3, stop=Stop(iterations=60)),
        groups=machines(1000, 1000),
        policies={"psld": placed},
        baseline="psld",
        servers=usual,
        odd_servers={1: slow, 2: slow},
        spare_servers=spare,
        tensor_sizes=(4 * MEBI, 2 * MEBI),
    )


def test_a_server_that_is_requested_starts_and_takes_blocks() -> None:
    cluster = play(slow_servers(spare=1), "psld")
    assert cluster.sizes.get(3, 0) > 0
    assert sum(cluster.sizes.values()) == 24 * MEBI
    alone = play(slow_servers(spare=0), "psld")
    assert alone.sizes.keys() <= {0, 1, 2}
    assert cluster.now < alone.now


def test_servers_with_little_are_probed_and_the_probes_are_distinguished() -> None:
    recording = Recording(keep=True)
    simulate(slow_servers(spare=0), "psld", recording=recording)
    said = [entry.event.message for entry in recording.entries if isinstance(entry.event, WorkerMessageReceived)]
    exchanges = [each for message in said if isinstance(message, IterationReport) for each in message.exchanges]
    probes = [each for each in exchanges if each.is_probe]
    assert {each.server for each in probes} <= {1, 2}
    assert probes
    assert max(each.bytes for each in probes) <= 256 * 1024
    # There and back, over a server of 4 MiB/s that may be busy with others.
    assert min(each.push_s / each.bytes for each in probes) >= 2 / (4.0 * MEBI) * 0.999


def test_machines_alike_have_nothing_to_ask_for() -> None:
    scenario = world(groups=alike(4, machines(100)[0].machine), spare_servers=2)
    assert play(scenario, "psld").server_processes.heartbeats(0).keys() == {"server:0:s0.0.1", "server:1:s1.0.1"}
