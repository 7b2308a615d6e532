"""Gradients against differences, training against what the mathematics promises."""

import math
import re
from typing import get_args

import numpy as np
import pytest

from controlplane.protocol.spec import Choice, Evaluate, Stop, Synchronization
from controlplane.simulator.cluster import Cluster
from controlplane.simulator.machines import CpuMachine
from controlplane.simulator.numerics.data import build_problem, partition
from controlplane.simulator.numerics.rounds import local_changes, stacked, steps_and_batch
from controlplane.simulator.numerics.settings import Federated, Numerics, Optimizer, ProblemName, Target
from controlplane.simulator.running import simulate
from controlplane.simulator.scenario import Scenario, chosen
from controlplane.simulator.scenarios.choices import barrier
from tests.simulator.worlds import alike, spec, world

PROBLEMS = get_args(ProblemName)
STEPS = {"k-means": 1.0, "matrix-factorisation": 0.05, "mlp": 0.5, "lasso": 0.05, "ridge": 0.05}


def settings(problem: str, **changes: object) -> Numerics:
    fields = {"problem": problem, "samples": 600, "held_out": 300, "features": 8, "classes": 3, "data_seed": 3}
    fields |= {"features": 16} if problem == "cnn" else {}
    lr = STEPS.get(problem, 0.3)
    return Numerics(**(fields | {"optimizer": Optimizer(lr=lr), "penalty": 0.01} | changes))


def training(numerics: Numerics, **changes: object) -> Scenario:
    job = spec(batch_size=20, stop=Stop(iterations=120), evaluate=Evaluate(every=10))
    return world(**({"spec": job, "numerics": numerics} | changes))


def parameters_after(scenario: Scenario, policy: str) -> np.ndarray:
    cluster = Cluster(scenario, chosen(scenario, policy), seed=1)
    cluster.run()
    assert cluster.mathematics is not None
    return cluster.mathematics.parameters


@pytest.mark.parametrize("name", [name for name in PROBLEMS if name != "k-means"])
def test_gradients_are_the_differences_of_losses(name: str) -> None:
    problem = build_problem(settings(name, penalty=0.0), 3)
    chance = np.random.default_rng(5)
    parameters = chance.normal(0.0, 0.5, (2, problem.size))
    samples = chance.integers(0, 600, (2, 7))
    mask = np.ones((2, 7))
    mask[1, 4:] = 0.0
    gradients, _ = problem.sums(parameters, samples, mask)
    for at in chance.integers(0, problem.size, 12):
        moved = np.zeros(problem.size)
        moved[at] = 1e-6
        higher, lower = (problem.sums(parameters + sign * moved, samples, mask)[1] for sign in (1, -1))
        assert (higher - lower) / 2e-6 == pytest.approx(gradients[:, at], abs=1e-4)


@pytest.mark.parametrize("name", PROBLEMS)
def test_workers_computed_together_are_as_if_each_were_alone(name: str) -> None:
    problem = build_problem(settings(name), 3)
    chance = np.random.default_rng(5)
    parameters = np.stack([problem.start(chance) + 0.1 * chance.normal(size=problem.size) for _ in range(3)])
    samples = chance.integers(0, 600, (3, 5))
    mask = (np.arange(5) < np.array([5, 3, 0])[:, None]).astype(np.float64)
    gradients, losses = problem.sums(parameters, samples, mask)
    for row, count in enumerate((5, 3, 0)):
        alone, loss = problem.sums(parameters[row : row + 1], samples[row : row + 1, :count], np.ones((1, count)))
        assert gradients[row] == pytest.approx(alone[0], abs=1e-9)
        assert losses[row] == pytest.approx(loss[0], abs=1e-9)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("policy", ["bsp", "asp", "aggressive"])
def test_training_lowers_the_loss_on_samples_that_were_held_out(name: str, policy: str) -> None:
    scenario = training(settings(name))
    cluster = Cluster(scenario, chosen(scenario, policy), seed=1)
    cluster.run()
    assert cluster.mathematics is not None
    scores = cluster.mathematics.scores
    assert scores[-1][2] < 0.95 * scores[0][2]


def test_any_shares_lead_to_the_same_parameters() -> None:
    """BSP and LB-BSP see the same samples and weigh them alike: only rounding differs (section 4)."""
    scenario = training(settings("softmax-regression"))
    even, balanced = (parameters_after(scenario, policy) for policy in ("bsp", "lb-bsp"))
    assert balanced == pytest.approx(even, abs=1e-9)
    assert np.abs(even).max() > 0.1


def test_a_lasso_sets_what_does_not_matter_to_zero() -> None:
    weights = parameters_after(training(settings("lasso", penalty=0.2, features=20)), "bsp")
    assert 2 <= np.count_nonzero(weights) <= 12


def test_k_means_finds_the_clouds() -> None:
    outcome = simulate(training(settings("k-means", separation=12.0, noise=0.0)), "bsp", seed=2)
    # Mean squared distance to the right centre is the number of features.
    assert outcome.loss == pytest.approx(8.0, rel=0.1)


def test_the_target_is_dated_and_counted_in_updates() -> None:
    numerics = settings("softmax-regression", target=Target(accuracy=0.6))
    outcome = simulate(training(numerics), "bsp")
    assert outcome.updates_to_target is not None
    assert outcome.time_to_target_s is not None
    assert outcome.updates_to_target % 40 == 0
    assert outcome.time_to_target_s == pytest.approx(outcome.updates_to_target / 4 * 20 / 250)


def test_a_job_may_stop_at_an_accuracy() -> None:
    job = spec(batch_size=20, stop=Stop(accuracy=0.6), evaluate=Evaluate(every=10))
    outcome = simulate(training(settings("softmax-regression"), spec=job), "bsp")
    assert outcome.state == "succeeded"
    assert "asked for 0.6" in outcome.why


def test_updates_on_arrival_are_scaled_by_the_number_of_workers() -> None:
    # One worker: a step on arrival is a step of bsp.
    job = spec(workers=1, servers=1, batch_size=20, stop=Stop(iterations=30))
    alone = alike(1, CpuMachine(samples_per_second=100.0))
    scenario = training(settings("ridge"), spec=job, groups=alone)
    assert parameters_after(scenario, "asp") == pytest.approx(parameters_after(scenario, "bsp"))
    # And as its policy scales it: half a step is one at half the rate.
    halved = training(settings("ridge", optimizer=Optimizer(lr=STEPS["ridge"] / 2)), spec=job, groups=alone)
    halving = training(
        settings("ridge"),
        spec=job,
        groups=alone,
        policies={"asp-half": barrier("asp", step_scale=0.5)},
        baseline="asp-half",
    )
    assert parameters_after(halving, "asp-half") == pytest.approx(parameters_after(halved, "bsp"))


@pytest.mark.parametrize("kind", ["iid", "shards", "sorted"])
def test_partitions_are_disjoint_and_complete(kind: str) -> None:
    labels = np.random.default_rng(2).integers(0, 10, 1000).astype(np.float64)
    parts = partition(kind, labels, 16, 4)  # type: ignore[arg-type]
    assert sorted(np.concatenate(parts).tolist()) == list(range(1000))
    assert max(map(len, parts)) - min(map(len, parts)) <= 2


def test_shards_give_a_worker_few_labels_and_chance_gives_it_all() -> None:
    labels = np.random.default_rng(2).integers(0, 10, 3200).astype(np.float64)
    seen = {
        kind: np.mean([len(set(labels[part])) for part in partition(kind, labels, 16, 4)])  # type: ignore[arg-type]
        for kind in ("iid", "shards", "sorted")
    }
    assert seen["iid"] == 10.0
    assert seen["shards"] <= 4.0
    assert seen["sorted"] <= 2.5


def test_the_literal_psp_applies_what_was_kept_as_sums() -> None:
    scenario = training(settings("softmax-regression"))
    literal = Synchronization(
        barrier=scenario.policies["bsp"].barrier.__class__(name="pbsp", parameters={"literal": True, "sample": 1})
    )
    cluster = Cluster(scenario, literal, seed=1)
    cluster.run()
    assert cluster.mathematics is not None
    assert cluster.mathematics.updates > 400
    assert cluster.mathematics.scores[-1][2] < cluster.mathematics.scores[0][2]


def test_a_worker_with_a_part_of_its_own_continues_where_it_stopped_or_begins_anew() -> None:
    def touched(*, resumes: bool) -> int:
        numerics = settings("ridge", partition="iid", resumes=resumes, noise=0.0, penalty=0.0)
        weights = parameters_after(training(numerics), "bsp")
        return int(np.abs(weights).sum() * 1e6)

    assert touched(resumes=True) != touched(resumes=False)


def test_the_convolutional_network_learns_the_bundled_digits() -> None:
    numerics = Numerics(
        problem="cnn",
        dataset="digits",
        samples=1497,
        held_out=300,
        classes=10,
        hidden=16,
        optimizer=Optimizer(name="adam", lr=0.01),
    )
    job = spec(batch_size=16, stop=Stop(iterations=120), evaluate=Evaluate(every=40))
    accuracy = simulate(world(spec=job, numerics=numerics, baseline="bsp"), "bsp").accuracy
    assert accuracy is not None
    assert accuracy > 0.85


def test_uneven_parts_have_every_label_one_after_the_other() -> None:
    labels = np.arange(40) % 2.0
    parts = partition("uneven", labels, 4, 3)
    assert sorted(np.concatenate(parts).tolist()) == list(range(40))
    assert all(np.all(np.diff(labels[part]) >= 0) and len(set(labels[part])) == 2 for part in parts)


def federated(**changes: object) -> Scenario:
    numerics = settings(
        "softmax-regression",
        partition="sorted",
        features=16,
        classes=4,
        separation=2.0,
        optimizer=Optimizer(lr=0.01),
        federated=Federated(**changes),
    )
    policies = {"bsp": Synchronization(), "lb": Synchronization(batching=Choice(name="lb-bsp-federated"))}
    return training(numerics, policies=policies, spec=spec(batch_size=20, stop=Stop(iterations=30)))


def test_a_round_of_one_step_each_is_the_mean_of_single_steps() -> None:
    problem = build_problem(settings("logistic-regression", penalty=0.0), 3)
    starts = np.zeros((2, problem.size))
    draws = [[np.array([1, 2, 3])], [np.array([4, 5])]]
    changes, _ = local_changes(problem, starts, draws, [0.1, 0.2])
    for row, rate in enumerate((0.1, 0.2)):
        samples, mask = stacked([draws[row][0]])
        gradient = problem.sums(starts[:1], samples, mask)[0][0] / len(draws[row][0])
        assert changes[row] == pytest.approx(rate * gradient)


@pytest.mark.parametrize(
    ("scales", "expected"), [("batch", (20, 150, 1.0)), ("steps", (30, 100, 1.0)), ("rate", (20, 150, 1.5))]
)
def test_a_share_changes_the_batch_or_the_steps_or_the_rate_too(scales: str, expected: tuple[int, int, float]) -> None:
    assert steps_and_batch(Federated(local_steps=20, scales=scales), 150, 100) == expected


def test_scaling_steps_by_speed_loses_accuracy_on_unlike_data_and_scaling_batches_does_not() -> None:
    even = simulate(federated(), "bsp").accuracy
    batches, steps = (simulate(federated(scales=scales), "lb").accuracy for scales in ("batch", "steps"))
    assert even is not None
    assert batches is not None
    assert steps is not None
    assert batches > even - 0.03
    assert steps < batches - 0.03


@pytest.mark.parametrize("policy", ["bsp", "asp"])
def test_a_job_that_diverges_fails_with_the_iteration_and_the_cure(policy: str) -> None:
    outcome = simulate(training(settings("ridge", optimizer=Optimizer(lr=1e6))), policy)
    assert outcome.state == "failed"
    told = r"the loss of w\d in iteration \d+ is (inf|nan); there is no checkpoint; try a smaller learning rate"
    assert re.fullmatch(told, outcome.why)
    assert outcome.loss is not None
    assert math.isfinite(outcome.loss)
