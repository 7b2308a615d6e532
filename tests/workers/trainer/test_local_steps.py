"""Federated rounds against FedAvg written by hand, and the ways to scale a client's work."""

from typing import Any, get_args

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from controlplane.jobs.validation import validated_spec
from controlplane.policies.aggregation import rules
from controlplane.protocol.spec import Federated, JobSpec, Optimizer, SpecError, Workload, parse_spec, spec_document
from controlplane.protocol.training import EQUAL, FEDERATED, Aggregation
from tests.workers.driver import Cluster, job_spec
from workers.trainer.local_steps import local_work, make_replica
from workers.trainer.sampler import make_sampler
from workers.workloads.catalogue import load_workload

SPEC = job_spec(
    workers=2,
    workload=Workload(name="softmax-regression", partition="two-shards"),
    batch_size=8,
    optimizer=Optimizer(lr=0.2),
    federated=Federated(local_steps=4),
)


def by_hand(spec: JobSpec, shares: list[list[int]]) -> np.ndarray:
    """FedAvg: each client's own steps of plain SGD from the common parameters, and the mean of where they led."""
    workload = load_workload(spec.workload)
    samplers = [make_sampler(workload, spec, rank) for rank in range(spec.workers)]
    common, replica = workload.init(spec.seed), workload.replica()
    position = 0
    for of_round in shares:
        led = []
        for rank, share in enumerate(of_round):
            replica.parameters[:] = common
            samples = samplers[rank].samples(position + sum(of_round[:rank]), share)
            for batch in np.array_split(samples, 4):
                replica.update(batch)
                replica.parameters -= spec.optimizer.lr * replica.gradient / len(batch)
            led.append(replica.parameters.copy())
        common = np.mean(led, axis=0)
        position += spec.global_batch
    return common


def test_rounds_through_servers_are_fedavg_with_equal_weights_for_any_shares() -> None:
    shares = [[32, 32], [47, 17], [6, 58]]
    with Cluster(replace(SPEC, servers=2), shares, block_bytes=400) as cluster:
        cluster.run()
    np.testing.assert_allclose(cluster.parameters, by_hand(SPEC, shares), rtol=1e-4, atol=1e-5)
    assert [report.samples for report in cluster.reports(1)] == [32, 17, 58]


def test_a_client_ends_a_round_where_it_began() -> None:
    workload = load_workload(SPEC.workload)
    replica = make_replica(workload, SPEC)
    replica.parameters[:] = workload.init(1)
    before = replica.parameters.copy()
    update = replica.update(np.arange(24))
    assert (update.samples, np.array_equal(replica.parameters, before), replica.gradient.any()) == (24, True, True)
    nothing = replica.update(np.empty(0, dtype=np.int64))
    assert (nothing.samples, replica.gradient.any()) == (0, False)


@pytest.mark.parametrize("name", FEDERATED)
@pytest.mark.parametrize("speed", [0.5, 1.0, 2.0])
def test_work_is_scaled_as_the_rule_of_that_name_defines(name: Aggregation, speed: float) -> None:
    spec = replace(SPEC, aggregation=name)
    scale = rules.rule(name).scale
    assert scale is not None
    samples = round(spec.usual_share * speed)
    found = local_work(spec, samples)
    expected = scale(rules.LocalWork(steps=4, batch=8, rate=0.2), speed)
    assert found.steps == expected.steps
    assert found.optimizer.lr == pytest.approx(expected.rate)
    assert round(samples / found.steps) == expected.batch


def test_rules_are_those_of_the_policies_by_name() -> None:
    assert set(get_args(Aggregation)) == set(rules.RULES)
    assert {name for name, rule in rules.RULES.items() if rule.weigh is rules.equally} == EQUAL
    assert {name for name, rule in rules.RULES.items() if rule.federated} == set(FEDERATED)


def test_a_schedule_counts_local_steps() -> None:
    spec = replace(SPEC, optimizer=replace(SPEC.optimizer, schedule=replace(SPEC.optimizer.schedule, warm_up=6)))
    workload = load_workload(spec.workload)
    replica = make_replica(workload, spec)
    replica.update(np.arange(24))
    first = np.abs(replica.gradient).sum()
    replica.update(np.arange(24))
    assert np.abs(replica.gradient).sum() > 1.5 * first


def document(**changes: Any) -> dict[str, Any]:
    plain = {"name": "f", "workload": {"name": "cnn"}, "workers": 2, "batch_size": 8, "stop": {"iterations": 1}}
    return plain | changes


def test_a_round_has_a_batch_for_each_local_step() -> None:
    spec = parse_spec(document(federated={"local_steps": 5}))
    assert (spec.global_batch, spec.weighing, spec.division, spec.applied.lr) == (80, "fedavg", "iid", 1.0)
    assert parse_spec(spec_document(spec)) == spec


@pytest.mark.parametrize(
    ("changes", "field", "expected"),
    [
        ({"aggregation": "fedavg"}, "aggregation", "since the job is not federated"),
        ({"federated": {}, "synchronization": {"batching": "deadline"}}, "federated", "complete local steps"),
        ({"federated": {}, "synchronization": {"barrier": "aggressive"}}, "federated", "complete local steps"),
        (
            {"federated": {}, "synchronization": {"data": "rotation"}},
            "workload.partition",
            "divides the samples itself",
        ),
        ({"federated": {"steps": 3}}, "federated.steps", "no field of that name"),
    ],
)
def test_what_does_not_go_with_a_federation_is_refused(changes: Any, field: str, expected: str) -> None:
    with pytest.raises(SpecError) as caught:
        validated_spec(document(**changes))
    assert caught.value.field == field
    assert expected in caught.value.expected


def test_the_naive_rule_weighs_workers_and_not_samples() -> None:
    def run(aggregation: Aggregation) -> np.ndarray:
        spec = job_spec(workers=2, aggregation=aggregation)
        with Cluster(spec, [[30, 2]]) as cluster:
            return np.asarray(cluster.run().parameters)

    workload = load_workload(SPEC.workload)
    replica, sampler = workload.replica(), make_sampler(workload, job_spec(workers=2), 0)
    replica.parameters[:] = workload.init(7)
    means = []
    for position, count in ((0, 30), (30, 2)):
        replica.update(sampler.samples(position, count))
        means.append(replica.gradient / count)
    expected = workload.init(7) - 0.5 * (means[0] + means[1]) / 2
    np.testing.assert_allclose(run("naive"), expected, rtol=1e-5, atol=1e-6)
    assert np.abs(run("sample-weighted") - expected).max() > 1e-3


def test_clients_of_a_federation_learn_from_unlike_data() -> None:
    spec = replace(SPEC, workers=4, optimizer=Optimizer(lr=0.1))
    with Cluster(spec, [[32] * 4] * 40) as cluster:
        cluster.run()
    workload = load_workload(spec.workload)
    replica = workload.replica()
    replica.parameters[:] = torch.from_numpy(cluster.parameters).numpy()
    score = replica.evaluate()
    assert score.accuracy is not None
    assert score.accuracy > 0.8
