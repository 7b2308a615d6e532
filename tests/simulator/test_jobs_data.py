"""A twin learns from what its job learns from: data, parts, order and first values are those of the trainers."""

import numpy as np
import pytest

from controlplane.protocol.spec import JobSpec, parse_spec
from controlplane.simulator.cluster import Cluster
from controlplane.simulator.numerics.data import build_problem, partition
from controlplane.simulator.reproduction.live.emulation import job_of
from controlplane.simulator.scenario import chosen
from controlplane.simulator.scenarios import find
from workers.trainer.sampler import make_sampler
from workers.workloads.catalogue import load_workload
from workers.workloads.shape import Workload

SEED = 3


def job(scenario: str, policy: str = "bsp") -> tuple[JobSpec, Workload]:
    spec = parse_spec(job_of(find(scenario), policy, SEED))
    return spec, load_workload(spec.workload)


def twin_of(scenario: str, policy: str = "bsp") -> Cluster:
    found = find(scenario)
    return Cluster(found, chosen(found, policy), seed=SEED)


@pytest.mark.parametrize("scenario", ["live-lb-bsp-gpus", "live-lb-bsp-cpus", "live-psp-16"])
def test_training_begins_with_the_values_of_the_job(scenario: str) -> None:
    spec, workload = job(scenario)
    cluster = twin_of(scenario)
    assert cluster.mathematics is not None
    # A job keeps weights by output and then offsets, a twin one row for each input and one for the offsets.
    weights, offsets = np.split(workload.init(spec.seed), [640])
    expected = np.concatenate([weights.reshape(10, 64).T.ravel(), offsets])
    assert cluster.mathematics.parameters == pytest.approx(expected, abs=1e-7)
    assert np.abs(expected).max() > 0.1


def test_samples_are_those_of_the_job_in_their_order_and_scaled_alike() -> None:
    from workers.workloads.data.bundled import bundled

    split = bundled("digits").split
    numerics = find("live-lb-bsp-gpus").numerics
    assert numerics is not None
    problem = build_problem(numerics, SEED)
    assert problem.labels.tolist() == split.train.targets.tolist()
    chosen_samples = np.array([[0, 7, 1436]])
    parameters = np.zeros((1, problem.size))
    gradient, _ = problem.sums(parameters, chosen_samples, np.ones((1, 3)))
    # Of equal scores each class has the same part: the column of a class without samples is a tenth of the inputs' sum.
    empty = next(label for label in range(10) if label not in problem.labels[chosen_samples[0]])
    inputs = split.train.features.numpy().reshape(-1, 64)[chosen_samples[0]]
    assert gradient.reshape(65, 10)[:64, empty] == pytest.approx(inputs.sum(axis=0) / 10, abs=1e-5)
    targets = split.held.targets.numpy()
    assert problem.score(parameters[0])[1] == pytest.approx((targets == 0).mean())


@pytest.mark.parametrize("rank", [0, 5, 15])
def test_each_worker_has_the_shards_of_the_job_in_their_order(rank: int) -> None:
    spec, workload = job("live-psp-16")
    expected = make_sampler(workload, spec, rank)
    cluster = twin_of("live-psp-16")
    training = cluster.mathematics
    assert training is not None
    parts = partition("two-shards", training.problem.labels, spec.workers, SEED)
    assert sum(map(len, parts)) == workload.sample_count
    worker = cluster.workers[rank]
    taken = []
    for _ in range(4):  # more than a pass over its ninety samples
        worker.share = 32
        training.begin(worker)
        taken += training._planned[rank].tolist()
        training._cursors[rank] += 32
    assert taken == [*map(int, expected.samples(0, 128))]
