import pytest

from controlplane.protocol.spec import Synchronization
from controlplane.simulator.disturbances import Wavering
from controlplane.simulator.errors import ScenarioError
from controlplane.simulator.gpus import gpu
from controlplane.simulator.numerics.settings import Numerics
from controlplane.simulator.reassignment import Reassignment
from controlplane.simulator.running import play, simulate
from controlplane.simulator.scenario import Group, Scenario, check
from tests.simulator.worlds import world

IDEAL_S = 256 / 2750
"""The demo's 256 samples at the speed of all four machines together."""


def helped(**costs: float) -> Scenario:
    free = {"negotiation_s": 0.0, "times": 1.0} | costs
    policies = {"bsp": Synchronization(), "flexrr": Synchronization()}
    return world(policies=policies, reassigning={"flexrr": Reassignment(**free)})


def test_free_hand_overs_come_close_to_the_least_possible_time() -> None:
    outcome = simulate(helped(), "flexrr")
    assert IDEAL_S <= outcome.iteration_s < 1.1 * IDEAL_S
    assert simulate(helped(), "bsp").iteration_s == pytest.approx(0.256, rel=0.01)


def test_what_hand_overs_cost_is_in_the_time() -> None:
    free, slow, late = (simulate(helped(**costs), "flexrr") for costs in ({}, {"times": 2.0}, {"negotiation_s": 0.05}))
    assert free.iteration_s < slow.iteration_s < 0.256
    assert free.iteration_s < late.iteration_s < 0.256


def test_handing_over_neither_loses_nor_adds_samples() -> None:
    scenario = helped(times=1.25)
    cluster = play(scenario, "flexrr")
    assert cluster.helpers is not None
    assert cluster.helpers.handed > 1000
    assert sum(worker.samples for worker in cluster.workers) == 40 * 256


def test_noise_does_not_hold_it_up() -> None:
    scenario = world(
        policies={"flexrr": Synchronization()},
        baseline="flexrr",
        reassigning={"flexrr": Reassignment()},
        wavering=Wavering(noise=0.3, spikes=0.2),
    )
    assert simulate(scenario, "flexrr").state == "succeeded"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"reassigning": {"other": Reassignment()}}, "reassigning: found 'other', expected one of bsp, lb-bsp"),
        ({"numerics": Numerics(problem="svm")}, "found 'a scenario with numerics', expected one where only times"),
        ({"groups": (Group(count=4, machine=gpu("V100")),)}, "found 'a GPU', expected machines that take samples one"),
    ],
)
def test_where_work_cannot_be_handed_over_it_is_refused(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(ScenarioError, match=sentence):
        check(world(**({"reassigning": {"bsp": Reassignment()}} | changes)))
