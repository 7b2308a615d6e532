"""Impossible scenarios are refused with the field, what was found, and the cure."""

from typing import Any

import msgspec
import pytest

from controlplane.protocol.spec import Choice, Limits, Stop, Synchronization
from controlplane.simulator.disturbances import Wavering
from controlplane.simulator.errors import ScenarioError, SeriesEnded
from controlplane.simulator.machines import CpuMachine, GpuMachine, TracedMachine
from controlplane.simulator.numerics.settings import Numerics, Optimizer, Target
from controlplane.simulator.running import compare, simulate
from controlplane.simulator.scenario import Happening
from tests.simulator.worlds import alike, machines, spec, world

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"groups": ()}, "groups: found '0 machines', expected one for each of the 4 workers"),
    ({"groups": machines(1, 2)}, "groups: found '2 machines'"),
    ({"policies": {}}, "policies: found {}, expected at least one"),
    ({"baseline": "best"}, "baseline: found 'best', expected one of bsp, lb-bsp"),
    ({"tensor_sizes": ()}, "tensor_sizes"),
    (
        {"policies": {"bsp": Synchronization(barrier=Choice(name="psb"))}, "baseline": "bsp"},
        r"policies.bsp.synchronization.barrier.name: found 'psb', expected one of aggressive, asp",
    ),
    (
        {"groups": alike(4, GpuMachine(launch_s=0.1, seconds_per_sample=0.1, memory_samples=32))},
        "machine of w0: found '32 samples of memory', expected at least 64, the batch",
    ),
    ({"stop": Stop(accuracy=0.9)}, "spec.stop: .* expected iterations or seconds, or an accuracy with numerics"),
    (
        {"numerics": Numerics(problem="lasso", optimizer=Optimizer(momentum=0.9))},
        "numerics.optimizer: .* expected sgd without momentum",
    ),
    (
        {"groups": alike(4, TracedMachine(samples_per_second=9, cpu=(0.1,), memory=(), step_s=1))},
        "machine of w0: found '1 CPU and 0 memory values', expected as many of each",
    ),
]


WRONG += [
    ({"spec": spec(workers=0)}, "spec.workers: found 0, expected `int` >= 1"),
    (
        {"groups": machines(1, 1, 1, float("inf"))},
        r"groups\[3\].machine.samples_per_second: found inf, expected a finite",
    ),
    (
        {"wavering": Wavering(spikes=0.1, spike_times=(3.0, 1.0))},
        r"spike_times: found \(3.0, 1.0\), expected two numbers",
    ),
    (
        {"happenings": (Happening(kind="crash", at_s=4000.0, index=0),)},
        r"happenings\[0\].at_s: found 4000.0, expected less than horizon_s, which is 3600",
    ),
    (
        {"happenings": (Happening(kind="explode", at_s=1.0, index=0),)},  # type: ignore[arg-type]
        r"happenings\[0\].kind: found 'explode', expected one of crash, leave, vanish, exclude, include, drain",
    ),
    (
        {"numerics": Numerics(problem="svm", target=Target(accuracy=2.0))},
        "numerics.target.accuracy: found 2.0, expected `float` <= 1.0",
    ),
    ({"warm_up": 40}, "warm_up: found 40, expected less than the 40 iterations of spec.stop"),
    (
        {"spec": spec(limits=Limits(maximum=32))},
        "spec.limits.maximum: found 32, expected at least batch_size, which is 64",
    ),
    (
        {"spec": spec(limits=Limits(minimum=65))},
        "spec.limits.minimum: found 65, expected at most batch_size, which is 64",
    ),
]


@pytest.mark.parametrize(("changes", "sentence"), WRONG)
def test_an_impossible_scenario_is_refused_with_the_field_and_the_cure(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ScenarioError, match=sentence):
        simulate(world(**changes), "bsp")


def test_a_negative_speed_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"Expected `float` > 0.0 - at `\$.samples_per_second`"):
        msgspec.convert({"type": "cpu", "samples_per_second": -1.0}, CpuMachine)
    with pytest.raises(
        ScenarioError, match=r"groups\[0\].machine.samples_per_second: found -1, expected `float` > 0.0"
    ):
        simulate(world(groups=machines(-1, 1, 1, 1)), "bsp")


def test_an_unknown_policy_is_refused_before_anything_runs_with_those_that_there_are() -> None:
    with pytest.raises(ScenarioError, match=r"policies: found 'fastest', expected one of bsp, lb-bsp, or registered"):
        list(compare(world(), ["bsp", "uniform+fastest"]))
    with pytest.raises(ScenarioError, match=r"policies: found 'ssp\+asp', expected one barrier: ssp or asp"):
        list(compare(world(), ["bsp", "ssp+asp"]))


def test_work_that_cannot_be_cut_short_gets_no_time_budget() -> None:
    gpus = alike(4, GpuMachine(launch_s=0.1, seconds_per_sample=0.1, memory_samples=64))
    with pytest.raises(
        ScenarioError, match=r"policies.batching: found 'deadline with a GPU \(w0\)', expected machines"
    ):
        list(compare(world(groups=gpus), ["deadline"]))


def test_data_that_are_divided_already_are_not_divided_again() -> None:
    sorted_labels = Numerics(problem="logistic-regression", partition="sorted")
    with pytest.raises(
        ScenarioError, match=r"policies.data: found 'rotation with a sorted partition', expected shared"
    ):
        list(compare(world(numerics=sorted_labels), ["rotation"]))


def test_a_job_without_servers_is_refused() -> None:
    reducing = msgspec.structs.replace(world().spec, communication="all-reduce", servers=0)
    with pytest.raises(ScenarioError, match=r"spec.communication: found 'all-reduce', expected servers"):
        simulate(msgspec.structs.replace(world(), spec=reducing), "bsp")


def test_a_series_that_ends_before_the_job_is_refused_with_the_machine() -> None:
    short = TracedMachine(samples_per_second=100.0, cpu=(0.0,) * 5, memory=(0.0,) * 5, step_s=1.0)
    with pytest.raises(SeriesEnded, match="machine of w0, speed: its 5 values of 1 s end at 5 s"):
        simulate(world(spec=spec(workers=2), groups=alike(2, short)), "bsp")


def test_a_run_that_is_not_over_at_the_horizon_reports_that_it_is_running() -> None:
    outcome = simulate(world(horizon_s=2.0), "bsp")
    assert (outcome.state, outcome.iterations) == ("running", 7)
