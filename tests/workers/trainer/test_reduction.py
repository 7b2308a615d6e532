"""Jobs without servers, trained by real workers in threads: equal to one process, through losses and late arrivals."""

from statistics import median
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from controlplane.jobs.validation import validated_spec
from controlplane.protocol.messages import IterationReport, Quiesced, WorkerHello
from controlplane.protocol.noise import combined
from controlplane.protocol.orders import Member
from controlplane.protocol.spec import (
    Emulation,
    Federated,
    JobSpec,
    Optimizer,
    SpecError,
    Workload,
    parse_spec,
    spec_document,
)
from tests.properties.test_training import GLOBAL_BATCH, schedules, single_process_run
from tests.support.examples import examples
from tests.workers.driver import Cluster, job_spec
from tests.workers.reducing import ReducingCluster
from workers.workloads.catalogue import load_workload
from workers.workloads.local import Local
from workers.workloads.network import Network

WIDE = Workload(name="mlp", dataset="digits", options={"hidden": [512, 512]})
"""Of more than one stretch: the back of the gradient is summed while its front is computed."""

MOMENTUM = Optimizer(lr=0.5, momentum=0.9, weight_decay=1e-3)


def reducing_spec(workers: int, **changes: Any) -> JobSpec:
    return job_spec(workers=workers, servers=0, communication="all-reduce", **changes)


def expected(spec: JobSpec, iterations: int, batch: int = GLOBAL_BATCH) -> np.ndarray:
    return single_process_run(spec, [(k * batch, batch) for k in range(iterations)])


@settings(max_examples=examples(6), deadline=None)
@given(schedule=schedules(), seed=st.integers(0, 2**31))
def test_a_run_without_servers_under_any_shares_equals_the_single_process_run(
    schedule: list[list[int]], seed: int
) -> None:
    spec = reducing_spec(len(schedule[0]), seed=seed, optimizer=MOMENTUM)
    with ReducingCluster(spec, schedule) as cluster:
        cluster.run()
    np.testing.assert_allclose(cluster.parameters, expected(spec, len(schedule)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": Optimizer(name="adam", lr=0.01)},
        {"aggregation": "naive"},
        {"federated": Federated(local_steps=3)},
        {"workload": Workload(name="k-means")},
        {"workload": Workload(name="cnn")},
        {"workload": WIDE, "aggregation": "naive"},
    ],
)
def test_without_servers_it_is_the_same_as_with_them(changes: Any) -> None:
    schedule = [[30, 11, 7], [1, 40, 7], [0, 0, 48], [16, 16, 16]]
    with ReducingCluster(reducing_spec(3, **changes), schedule) as reducing:
        reducing.run()
    with Cluster(job_spec(workers=3, servers=2, **changes), schedule) as serving:
        serving.run()
    np.testing.assert_allclose(reducing.parameters, serving.parameters, rtol=1e-4, atol=1e-5)


def gradients_of(spec: JobSpec) -> torch.Tensor:
    """Those of each sample by the initial parameters."""
    workload = load_workload(spec.workload)
    assert isinstance(workload, Network)
    data, module = workload.dataset.split.train, workload.build()
    torch.nn.utils.vector_to_parameters(torch.from_numpy(workload.init(spec.seed)), module.parameters())
    rows = []
    for sample in range(workload.sample_count):
        inputs, targets = data.take(np.array([sample]), torch.device("cpu"))
        module.zero_grad()
        torch.nn.functional.cross_entropy(module(inputs), targets).backward()
        rows.append(torch.cat([each.grad.flatten() for each in module.parameters() if each.grad is not None]))
    return torch.stack(rows)


def test_workers_report_the_gradient_noise_scale_of_what_they_sum() -> None:
    """Parameters stay, so the scale follows from the gradients of all samples."""
    schedule = [[24, 16, 8]] * 201
    with ReducingCluster(reducing_spec(3, optimizer=Optimizer(lr=1e-9)), schedule) as cluster:
        cluster.run()
        found = [[each.noise_scale for each in cluster.reports(rank)] for rank in range(3)]
    rows = gradients_of(cluster.spec)
    noise, signal = float(rows.var(dim=0, unbiased=True).sum()), float(rows.mean(dim=0).square().sum())
    for each in found:
        assert set(each[:72]) == {UNSET}
        assert 0.5 < each[-1] / (noise / signal) < 2.0
    together = combined({rank: each[-1] for rank, each in enumerate(found)}, {0: 24, 1: 16, 2: 8})
    assert together == pytest.approx(noise / signal, rel=0.2)


@pytest.mark.parametrize(
    "changes",
    [{"aggregation": "naive"}, {"federated": Federated(local_steps=3)}, {"workload": Workload(name="k-means")}],
)
def test_of_updates_that_are_no_mean_gradients_there_is_no_noise_scale(changes: Any) -> None:
    with ReducingCluster(reducing_spec(2, **changes), [[30, 18]] * 90) as cluster:
        cluster.run()
        assert {each.noise_scale for rank in range(2) for each in cluster.reports(rank)} == {UNSET}


def test_after_the_loss_of_a_worker_the_others_repeat_the_iteration_without_it() -> None:
    spec = reducing_spec(3, optimizer=MOMENTUM)
    schedule = [[16, 16, 16], [16, 16, 16], [24, 0, 24], [24, 0, 24]]
    with ReducingCluster(spec, schedule) as cluster:
        cluster.withheld = {(1, 2)}
        cluster.start()
        lost = cluster.worker(1)
        lost.link.await_said(IterationReport, 2)
        lost.link.stop()
        lost.join()
        cluster.generation = 2
        cluster.convene([member for member in cluster.roster if member.rank != 1], 2)
        for rank in (0, 2):
            cluster.worker(rank).join()
        assert [report.iteration for report in cluster.reports(0)] == [0, 1, 2, 3]
        assert [report.generation for report in cluster.reports(2)][-1] == 2
    np.testing.assert_allclose(cluster.parameters, expected(spec, 4), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("workload", [Workload(name="softmax-regression"), WIDE])
def test_a_broken_group_is_recreated_although_no_worker_left(workload: Workload) -> None:
    spec = reducing_spec(2, workload=workload)
    schedule = [[24, 24]] * 4
    with ReducingCluster(spec, schedule) as cluster:
        cluster.withheld = {(0, 2), (1, 2)}
        cluster.start()
        for rank in (0, 1):
            cluster.worker(rank).link.await_said(IterationReport, 2)
        cluster.generation = 2  # as after a restart of the control plane: the same members meet again
        cluster.convene(cluster.roster, 2)
        for worker in cluster.workers:
            worker.join()
    np.testing.assert_allclose(cluster.parameters, expected(spec, 4), rtol=1e-5, atol=1e-5)


def test_sums_that_were_begun_under_way_are_carried_to_their_end_or_taken_again() -> None:
    """One computes for long and has begun its sums; the other is told of a new generation before it has."""
    machines = [Emulation(samples_per_second=20_000), Emulation(samples_per_second=60)]
    spec = reducing_spec(2, workload=WIDE)
    with ReducingCluster(spec, [[24, 24]] * 4, emulate=machines) as cluster:
        cluster.start()
        for rank in (0, 1):
            cluster.worker(rank).link.await_said(IterationReport, 1)
        cluster.generation = 2
        cluster.convene(cluster.roster, 1)
        for worker in cluster.workers:
            worker.join()
        assert [[report.iteration for report in cluster.reports(rank)] for rank in (0, 1)] == [[0, 1, 2, 3]] * 2
    np.testing.assert_allclose(cluster.parameters, expected(spec, 4), rtol=1e-5, atol=1e-5)


def test_a_late_worker_receives_parameters_and_optimizer_and_continues_with_the_others() -> None:
    spec = reducing_spec(3, optimizer=MOMENTUM)
    schedule = [[24, 24, 0], [24, 24, 0], [16, 16, 16], [16, 16, 16]]
    with ReducingCluster(spec, schedule) as cluster:
        cluster.roster = cluster.roster[:2]
        cluster.withheld = {(0, 2), (1, 2)}
        cluster.start()
        for rank in (0, 1):
            cluster.worker(rank).link.await_said(IterationReport, 2)
        cluster.add_worker(2, "w2").link.await_said(WorkerHello)
        cluster.generation = 2
        cluster.convene([*cluster.roster, Member(rank=2, instance="w2", from_iteration=2)], 2)
        for worker in cluster.workers:
            worker.join()
        assert [report.iteration for report in cluster.reports(2)] == [2, 3]
    np.testing.assert_allclose(cluster.parameters, expected(spec, 4), rtol=1e-5, atol=1e-5)


def test_the_slowest_is_waited_for_and_its_own_time_is_its_own() -> None:
    machines = [Emulation(samples_per_second=20_000), Emulation(samples_per_second=80)]
    with ReducingCluster(reducing_spec(2), [[16, 16]] * 8, emulate=machines) as cluster:
        cluster.run()
    fast, slow = cluster.reports(0)[2:], cluster.reports(1)[2:]
    waits, own = median(report.waiting_s for report in fast), median(report.push_s for report in fast)
    assert waits > 2 * own
    assert waits > 2 * median(report.waiting_s for report in slow)
    assert min(report.compute_s for report in slow) > 0.9 * 16 / 80  # its clock may start a moment after the work


def test_all_workers_quiesce_or_none() -> None:
    """One that stood alone would leave the others waiting in the middle of an iteration."""
    machines = [Emulation(samples_per_second=800)] * 2
    with ReducingCluster(reducing_spec(2), [[8, 8]] * 500, emulate=machines) as cluster:
        cluster.withheld = {(rank, iteration) for rank in (0, 1) for iteration in range(1, 500)}
        cluster.start()
        first, second = cluster.worker(0).link, cluster.worker(1).link
        going = [replace(cluster.orders(rank, 400), sequence=40, share_from=1) for rank in (0, 1)]
        first.give(replace(going[0], hold=True))  # the other has not heard: the first continues with it
        second.give(going[1])
        second.await_said(IterationReport, 5)
        assert first.heard(Quiesced) == []
        second.give(replace(going[1], hold=True, sequence=41))
        stood = [link.await_said(Quiesced)[0].iteration for link in (first, second)]
        assert stood[0] == stood[1]


def document(**changes: Any) -> dict[str, Any]:
    plain = {"name": "r", "workload": {"name": "cnn"}, "workers": 2, "batch_size": 8, "stop": {"iterations": 1}}
    return plain | {"communication": "all-reduce"} | changes


def test_a_job_without_servers_has_none() -> None:
    spec = parse_spec(document())
    assert (spec.servers, spec.reduces, parse_spec(spec_document(spec))) == (0, True, spec)


@pytest.mark.parametrize(
    ("changes", "field", "expected"),
    [
        ({"servers": 2}, "servers", "0 with communication all-reduce, where workers hold the parameters"),
        ({"communication": "servers", "servers": 0}, "servers", "`int` >= 1, or communication: all-reduce"),
        ({"communication": "pigeons"}, "communication", "one of all-reduce, servers"),
        (
            {"synchronization": {"barrier": "asp"}},
            "synchronization.barrier.name",
            "asp needs servers that apply each worker's update separately",
        ),
    ],
)
def test_what_needs_servers_is_refused_with_the_reason(changes: Any, field: str, expected: str) -> None:
    with pytest.raises(SpecError) as caught:
        validated_spec(document(**changes))
    assert caught.value.field == field
    assert expected in caught.value.expected


def test_workers_on_machines_that_encrypt_do_not_add_up_over_connections_that_do_not() -> None:
    with (
        ReducingCluster(reducing_spec(1), [[16]], local=Local(host="10.0.0.5", encrypts=True)) as cluster,
        pytest.raises(SpecError, match=r"communication: found 'all-reduce', expected servers, since the worker at 10"),
    ):
        cluster.add_worker(0, "w0").join()
