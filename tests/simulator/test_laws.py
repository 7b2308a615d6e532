"""What any run must obey, whatever the machines."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.policies import registry
from controlplane.protocol.spec import Stop
from controlplane.simulator.control import ControlPlane, Recording
from controlplane.simulator.disturbances import Wavering
from controlplane.simulator.network import Link, ServerSpec
from controlplane.simulator.running import simulate
from controlplane.simulator.scenario import Scenario
from tests.simulator.worlds import machines, spec, world
from tests.support.examples import examples

SPEEDS = st.lists(st.floats(min_value=10.0, max_value=5000.0), min_size=1, max_size=6)
ROUGH = Wavering(noise=0.2, spikes=0.1)
BATCHING = ["uniform", "lb-bsp-gpu", "lb-bsp-linear", "lb-bsp-federated"]


def digest(scenario: Scenario, policy: str, seed: int) -> str:
    recording = Recording(keep=False)
    simulate(scenario, policy, seed=seed, recording=recording)
    return recording.digest


@pytest.mark.parametrize("policy", [*registry.names("barrier"), *BATCHING])
def test_same_seed_gives_the_same_bytes_and_another_seed_others(policy: str) -> None:
    scenario = world(wavering=ROUGH, control=ControlPlane(latency_s=0.002, decision_s=0.0001))
    first, again, other = (digest(scenario, policy, seed) for seed in (3, 3, 4))
    assert first == again
    assert first != other


@settings(max_examples=examples(30), deadline=None)
@given(speeds=SPEEDS, batch=st.integers(min_value=1, max_value=200))
def test_an_iteration_of_bsp_lasts_as_long_as_the_slowest_is_busy(speeds: list[float], batch: int) -> None:
    job = spec(workers=len(speeds), batch_size=batch, stop=Stop(iterations=6))
    outcome = simulate(world(spec=job, groups=machines(*speeds)), "bsp")
    slowest_s = batch / min(speeds)
    assert outcome.iteration_s == pytest.approx(slowest_s, rel=1e-9)
    assert outcome.seconds == pytest.approx(6 * slowest_s, rel=1e-9)
    assert outcome.state == "succeeded"


@pytest.mark.parametrize("policy", registry.names("barrier"))
def test_the_parts_of_an_iteration_are_all_of_it(policy: str) -> None:
    scenario = world(
        wavering=ROUGH,
        groups=machines(1000, 1000, 500, 250, link=Link(bytes_per_s=1e6, latency_s=0.001)),
        servers=ServerSpec(bytes_per_s=2e6),
        control=ControlPlane(latency_s=0.002, decision_s=0.0001),
    )
    outcome = simulate(scenario, policy)
    parts = outcome.waiting + outcome.coordination + outcome.compute + outcome.communication
    assert parts == pytest.approx(1.0, abs=1e-9)
    assert min(outcome.waiting, outcome.coordination, outcome.compute, outcome.communication) >= 0.0


def test_asynchronous_workers_never_wait_without_latency() -> None:
    outcome = simulate(world(), "asp")
    assert outcome.waiting == pytest.approx(0.0, abs=1e-12)
    assert outcome.samples == 40 * 256


def test_latency_of_the_control_plane_is_in_the_result() -> None:
    free = simulate(world(), "lb-bsp")
    slow = simulate(world(control=ControlPlane(latency_s=0.005)), "lb-bsp")
    assert slow.iteration_s - free.iteration_s == pytest.approx(0.01, abs=0.001)
    assert slow.coordination > free.coordination == 0.0


def test_decisions_are_made_one_after_another() -> None:
    # The orders of an iteration leave when the fourth report is handled; reports of earlier iterations are by then.
    free = simulate(world(), "lb-bsp")
    slow = simulate(world(control=ControlPlane(decision_s=0.003)), "lb-bsp")
    assert 0.002 < slow.iteration_s - free.iteration_s < 0.013


def test_watermarks_ahead_hide_the_latency_from_bsp() -> None:
    free = simulate(world(), "bsp")
    slow = simulate(world(control=ControlPlane(latency_s=0.05)), "bsp")
    assert slow.iteration_s == pytest.approx(free.iteration_s)
