"""Whole runs: real trainers and servers as threads, over real loopback sockets."""

import time

import msgspec
import numpy as np
import pytest

from controlplane.protocol.messages import Evaluation, IterationReport, ServerReport, WorkerFinished, WorkerHello
from controlplane.protocol.orders import Member
from controlplane.protocol.spec import Emulation, Evaluate, Optimizer, Workload
from tests.properties.test_training import single_process_run
from tests.support.waiting import eventually
from tests.workers.driver import Cluster, Vector, job_spec
from tests.workers.proxy import BreakingProxy, breaking_proxies
from workers.workloads.local import Local


def assert_equal_to_single_process(cluster: Cluster, batches: list[tuple[int, int]]) -> None:
    expected: Vector = single_process_run(cluster.spec, batches)
    np.testing.assert_allclose(cluster.parameters, expected, rtol=1e-5, atol=1e-5)


def members(*names: tuple[int, str, int]) -> list[Member]:
    return [Member(rank=rank, instance=instance, from_iteration=first) for rank, instance, first in names]


def test_every_worker_sends_a_hello_reports_each_iteration_and_finishes() -> None:
    with Cluster(job_spec(workers=2), [[10, 6], [4, 12]]) as cluster:
        cluster.run()
        for rank in (0, 1):
            kinds = [type(message) for message in cluster.worker(rank).link.said if not isinstance(message, Evaluation)]
            assert kinds == [WorkerHello, IterationReport, IterationReport, WorkerFinished]
        assert [(r.iteration, r.samples, r.position) for r in cluster.reports(0)] == [(0, 10, 0), (1, 4, 16)]
        assert [(r.iteration, r.samples, r.position) for r in cluster.reports(1)] == [(0, 6, 10), (1, 12, 20)]
        hello = cluster.worker(0).link.heard(WorkerHello)[0]
        assert (hello.parameter_count, hello.sample_count) == (650, 1437)


def test_one_worker_scores_and_saves_the_others_only_finish() -> None:
    spec = job_spec(workers=2, evaluate=Evaluate(every=2))
    with Cluster(spec, [[8, 8]] * 5) as cluster:
        cluster.run()
        scored = [evaluation.iteration for evaluation in cluster.worker(0).link.heard(Evaluation)]
        # A version is left out while the one before is being scored; the last never is.
        assert scored == sorted({*scored})
        assert {0, 5} <= {*scored} <= {0, 2, 4, 5}
        assert cluster.worker(1).link.heard(Evaluation) == []
        finished = [worker.link.heard(WorkerFinished)[0] for worker in cluster.workers]
        assert [(message.iteration, message.model_saved) for message in finished] == [(5, True), (5, False)]
        assert {name: array.shape for name, array in cluster.models[0].items()} == {
            "linear.weight": (10, 64),
            "linear.bias": (10,),
        }


def test_the_parts_of_all_iterations_sum_to_the_time_of_the_run() -> None:
    emulate = [Emulation(samples_per_second=400.0), Emulation(samples_per_second=200.0)]
    with Cluster(job_spec(workers=2), [[10, 10]] * 4, emulate=emulate) as cluster:
        began = time.monotonic()
        cluster.run()
        took_s = time.monotonic() - began
        for rank in (0, 1):
            total_s = sum(report.iteration_s for report in cluster.reports(rank))
            assert 3 * 0.05 <= total_s <= took_s


def test_an_emulated_machine_keeps_its_speed_and_the_faster_one_waits() -> None:
    emulate = [Emulation(samples_per_second=1000.0), Emulation(samples_per_second=100.0)]
    with Cluster(job_spec(workers=2), [[10, 10]] * 4, emulate=emulate) as cluster:
        cluster.run()
        fast, slow = cluster.reports(0)[1:], cluster.reports(1)[1:]
        assert all(report.processing_s >= 0.1 for report in slow)
        assert 0.01 <= min(report.compute_s for report in fast) < 0.08  # the least disturbed of several
        assert max(report.waiting_s for report in fast) > 0.02 > min(report.pull_s for report in fast)
        assert not any(report.overran for report in slow)


def test_a_machine_that_cannot_keep_its_speed_reports_it() -> None:
    with Cluster(job_spec(workers=1), [[16]], emulate=[Emulation(samples_per_second=1e12)]) as cluster:
        cluster.run()
        assert [report.overran for report in cluster.reports(0)] == [True]


def test_updates_whose_loss_is_no_number_are_left_out_and_spoil_nothing() -> None:
    spec = job_spec(
        workers=2, workload=Workload(name="ridge", dataset="diabetes"), optimizer=Optimizer(name="sgd", lr=1e6)
    )
    with Cluster(spec, [[8, 8]] * 12) as cluster:
        cluster.run()
        spoilt = [report for rank in (0, 1) for report in cluster.reports(rank) if report.spoilt]
        assert {report.spoilt for report in spoilt} == {"inf"}
        assert {(report.samples, report.loss) for report in spoilt} == {(0, 0.0)}
        assert np.isfinite(cluster.parameters).all()


def test_a_share_of_nothing_still_takes_part() -> None:
    with Cluster(job_spec(workers=2), [[16, 0], [0, 16], [0, 0], [8, 8]]) as cluster:
        cluster.run()
        assert [(r.samples, r.loss > 0.0) for r in cluster.reports(1)] == [
            (0, False),
            (16, True),
            (0, False),
            (8, True),
        ]
        # Nothing was learnt from the iteration without samples; its positions are taken all the same.
        assert_equal_to_single_process(cluster, [(0, 16), (16, 16), (48, 16)])


def test_when_a_worker_dies_the_others_finish_with_what_was_pushed() -> None:
    schedule = [[16, 16, 16]] * 3 + [[24, 24, 0]] * 2
    with Cluster(job_spec(workers=3, servers=2), schedule) as cluster:
        cluster.withheld = {(2, 2), (0, 3), (1, 3)}
        cluster.start()
        for rank, count in ((0, 3), (1, 3), (2, 2)):
            cluster.worker(rank).link.await_said(IterationReport, count)
        cluster.worker(2).link.stop()
        cluster.worker(2).join()
        cluster.generation = 2
        cluster.appoint(members((0, "w0", 0), (1, "w1", 0)))
        for rank in (0, 1):
            cluster.grant(rank, 3)
        for rank in (0, 1):
            cluster.worker(rank).join()
        assert [report.generation for report in cluster.reports(0)] == [1, 1, 1, 2, 2]
        assert_equal_to_single_process(cluster, [(0, 48), (48, 48), (96, 32), (144, 48), (192, 48)])
        missing = {found for report in cluster.server_reports() for found in report.missing}
        assert missing <= {(2, 2)}


def test_a_push_that_is_stale_waits_for_orders_and_counts_then() -> None:
    with Cluster(job_spec(workers=2, servers=2), [[16, 16]] * 3) as cluster:
        cluster.withheld = {(0, 1), (1, 1)}
        cluster.start()
        links = [cluster.worker(rank).link for rank in (0, 1)]
        for link in links:
            link.await_said(IterationReport, 1)
        outdated = [cluster.orders(rank, 1) for rank in (0, 1)]
        cluster.generation = 2
        cluster.appoint(cluster.roster)
        waits = [link.waits for link in links]
        for link, orders in zip(links, outdated, strict=True):
            link.give(msgspec.structs.replace(orders, sequence=orders.sequence + 100))
        for link, before in zip(links, waits, strict=True):
            eventually(lambda link=link, before=before: link.waits > before, what="the wait for a new generation")
        for rank in (0, 1):
            cluster.grant(rank, 1)
        for worker in cluster.workers:
            worker.join()
        assert [report.generation for report in cluster.reports(0)] == [1, 2, 2]
        assert_equal_to_single_process(cluster, [(0, 32), (32, 32), (64, 32)])


def test_a_worker_that_arrives_counts_from_its_iteration_on() -> None:
    schedule = [[16, 16, 0]] * 2 + [[10, 10, 12]] * 2
    with Cluster(job_spec(workers=3), schedule) as cluster:
        cluster.roster = members((0, "w0", 0), (1, "w1", 0))
        cluster.withheld = {(0, 2), (1, 2)}
        cluster.start()
        for rank in (0, 1):
            cluster.worker(rank).link.await_said(IterationReport, 2)
        cluster.generation = 2
        cluster.appoint(members((0, "w0", 0), (1, "w1", 0), (2, "late", 2)))
        cluster.add_worker(2, "late")
        for rank in (0, 1, 2):
            cluster.grant(rank, 2)
        for worker in cluster.workers:
            worker.join()
        assert [report.iteration for report in cluster.reports(2)] == [2, 3]
        assert_equal_to_single_process(cluster, [(k * 32, 32) for k in range(4)])


def test_without_a_decision_in_time_the_last_share_holds() -> None:
    with Cluster(job_spec(workers=1), [[16]] * 3) as cluster:
        cluster.withheld = {(0, 1), (0, 2), (0, 3)}
        grant = cluster.orders

        def generous(rank: int, iteration: int) -> object:
            return msgspec.structs.replace(grant(rank, iteration), watermark=10, decision_timeout_s=0.01)

        cluster.orders = generous  # type: ignore[method-assign,assignment]
        cluster.run()
        assert [(r.iteration, r.samples, r.position) for r in cluster.reports(0)] == [
            (0, 16, 0),
            (1, 16, 16),
            (2, 16, 32),
        ]
        assert all(report.coordination_s >= 0.01 for report in cluster.reports(0)[1:])


@pytest.mark.parametrize("encrypts", [False, True], ids=["plain", "encrypted"])
@pytest.mark.parametrize("servers", [1, 3])
def test_connections_that_break_anywhere_change_nothing_in_the_result(servers: int, encrypts: bool) -> None:
    limits = [300, 1500, 4000, 700, 2600, 5000, 9000]
    with breaking_proxies() as proxies:

        def through(host: str, port: int) -> tuple[str, int]:
            proxies.append(BreakingProxy((host, port), limits))
            return proxies[-1].address

        spec, shares, local = job_spec(workers=2, servers=servers), [[11, 5]] * 6, Local(encrypts=encrypts)
        with Cluster(spec, shares, block_bytes=400, through=through, local=local) as cluster:
            cluster.run()
            assert_equal_to_single_process(cluster, [(k * 16, 16) for k in range(6)])
        assert all(proxy.broken for proxy in proxies)


def test_stopping_ends_a_worker_that_a_server_holds() -> None:
    with Cluster(job_spec(workers=2), [[8, 8]] * 3) as cluster:
        cluster.withheld = {(1, 1)}
        cluster.start()
        cluster.worker(0).link.await_said(IterationReport, 2)
        cluster.worker(0).link.stop()
        cluster.worker(0).join()
        assert cluster.worker(0).link.heard(WorkerFinished) == []


def test_servers_report_how_far_they_are_and_what_passed() -> None:
    with Cluster(job_spec(workers=2, servers=2), [[8, 8]] * 3) as cluster:
        cluster.run()
        for server in cluster.servers:
            told = server.link.await_said(ServerReport, len(server.link.heard(ServerReport)) + 2)
            assert told[-1].iteration == 3
        reports = cluster.server_reports()
        assert sum(report.bytes_in for report in reports) == 2 * 3 * 650 * 4
        assert sum(report.bytes_out for report in reports) == (2 * 3 + 1) * 650 * 4
        assert all(report.busy_s < 60.0 for report in reports)


def test_a_job_without_that_workload_ends_its_processes_with_the_reason() -> None:
    spec = msgspec.structs.replace(
        job_spec(workers=1), workload=msgspec.structs.replace(job_spec(workers=1).workload, name="transformer")
    )
    with (
        Cluster(spec, [[16]]) as cluster,
        pytest.raises(ValueError, match="found 'transformer', expected one of alexnet-shape"),
    ):
        cluster.servers[0].join()
