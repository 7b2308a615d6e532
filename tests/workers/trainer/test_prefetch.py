"""Samples taken ahead: the same values bit for bit as without, whatever orders change in the meantime."""

import threading
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from controlplane.protocol.spec import Federated, Workload
from tests.support.gpus import needs_gpu
from tests.support.waiting import eventually
from tests.workers.driver import Cluster, Shares, job_spec
from workers.trainer.local_steps import make_replica
from workers.workloads.catalogue import load_workload
from workers.workloads.data.examples import SparseTable, Table
from workers.workloads.data.loader import Loader
from workers.workloads.foreign import Foreign, ForeignReplica
from workers.workloads.shape import Prefetching, loading_s_of

CPU = torch.device("cpu")
CHANGING: list[Shares] = [(16, 16), (16, 16), (10, 22), (10, 22), (22, 10), (0, 32), (16, 16), (16, 16)]


def trained(prefetch: int, **changes: Any) -> tuple[np.ndarray, list[list[tuple[int, int, float]]]]:
    """The final parameters, and what each worker reported of each iteration."""
    workload = Workload(name="mlp", prefetch=prefetch, **changes.pop("workload", {}))
    everything = patch("workers.workloads.data.loader.WORTH_S", 0.0)
    with everything, Cluster(job_spec(workers=2, workload=workload, **changes), CHANGING) as cluster:
        cluster.run()
        seen = [[(r.position, r.samples, r.loss) for r in cluster.reports(rank)] for rank in range(2)]
        return cluster.parameters, seen


@pytest.mark.parametrize("prefetch", [1, 3])
@pytest.mark.parametrize(
    "changes",
    [{}, {"workload": {"partition": "by-label"}}, {"federated": Federated(local_steps=3), "servers": 1}],
    ids=["shared", "partitioned", "federated"],
)
def test_training_is_the_same_bit_for_bit_with_and_without_prefetch(prefetch: int, changes: dict[str, Any]) -> None:
    without, seen = trained(0, **dict(changes))
    ahead, seen_ahead = trained(prefetch, **dict(changes))
    assert np.array_equal(without, ahead)
    assert seen == seen_ahead


class Slow:
    """A table whose ``take`` waits until it may; says on which thread it took what."""

    def __init__(self) -> None:
        self.inner = Table(features=torch.arange(200.0).reshape(100, 2), targets=torch.arange(100))
        self.targets = self.inner.targets
        self.taken: list[tuple[str, list[int]]] = []
        self.may = threading.Event()
        self.may.set()
        self.entered: Callable[[], object] = lambda: None
        """Called when a take has begun."""

    def __len__(self) -> int:
        return len(self.inner)

    def take(self, samples: Any, device: torch.device) -> Any:
        self.taken.append((threading.current_thread().name.partition("_")[0], list(samples)))
        self.entered()
        assert self.may.wait(30)
        return self.inner.take(samples, device)


def batch(*samples: int) -> np.ndarray:
    return np.array(samples, dtype=np.int64)


NOW = batch(0)
"""What the trainer takes itself, since it is asked for at once."""


def test_expected_batches_are_taken_while_the_trainer_does_something_else() -> None:
    slow = Slow()
    loader = Loader(slow, CPU, worth_s=0.0)
    loader.expect([NOW, batch(1, 2), batch(3)])
    eventually(lambda: len(slow.taken) == 2, what="both batches")
    assert loader.take(batch(1, 2))[1].tolist() == [1, 2]
    assert loader.take(batch(3))[1].tolist() == [3]
    assert slow.taken == [("loader", [1, 2]), ("loader", [3])]


def test_a_batch_that_was_not_started_is_loaded_by_the_thread_that_needs_it() -> None:
    slow = Slow()
    slow.may.clear()
    loader = Loader(slow, CPU, worth_s=0.0)
    loader.expect([NOW, batch(1), batch(2)])
    eventually(lambda: len(slow.taken) == 1, what="the first batch")
    taker = threading.Thread(target=loader.take, args=(batch(2),), name="trainer_")
    taker.start()
    eventually(lambda: ("trainer", [2]) in slow.taken, what="the second batch, on the trainer's thread")
    slow.may.set()
    taker.join(30)


def test_what_is_expected_again_is_not_taken_twice_and_what_is_not_is_dropped() -> None:
    slow = Slow()
    loader = Loader(slow, CPU, worth_s=0.0)
    loader.expect([NOW, batch(1), batch(2)])
    eventually(lambda: len(slow.taken) == 2, what="both batches")
    loader.expect([batch(2), batch(4)])
    eventually(lambda: len(slow.taken) == 3, what="the new batch")
    for wanted in (2, 4, 1):
        assert loader.take(batch(wanted))[1].tolist() == [wanted]
    assert [samples for _, samples in slow.taken] == [[1], [2], [4], [1]]


def test_an_error_ahead_of_time_is_raised_where_the_batch_is_needed() -> None:
    loader = Loader(Table(features=torch.zeros(1, 1), targets=torch.zeros(1)), CPU, worth_s=0.0)
    loader.expect([NOW, batch(5)])
    with pytest.raises(IndexError):
        loader.take(batch(5))


batches = st.lists(st.lists(st.integers(0, 29), max_size=8).map(lambda found: batch(*found)), max_size=6)


@given(st.lists(st.tuples(batches, batches), max_size=8), st.booleans())
def test_the_loaded_batch_is_the_requested_one_after_any_expectation(
    rounds: list[tuple[Sequence[np.ndarray], Sequence[np.ndarray]]], is_sparse: bool
) -> None:
    rows = torch.arange(30)
    table: Any = Table(features=torch.arange(60.0).reshape(30, 2), targets=rows)
    if is_sparse:
        starts = torch.cat([torch.zeros(1, dtype=torch.int64), torch.cumsum(rows % 3, 0)])
        table = SparseTable(starts=starts, columns=torch.arange(30), values=torch.arange(30.0), targets=rows)
    loader = Loader(table, CPU, worth_s=0.0)
    for expected, wanted in rounds:
        loader.expect(expected)
        for samples in wanted:
            inputs, targets = loader.take(samples)
            straight, _ = table.take(samples, CPU)
            assert targets.tolist() == list(samples)
            pairs = [(inputs.offsets, straight.offsets), (inputs.columns, straight.columns)] if is_sparse else []
            assert all(torch.equal(left, right) for left, right in pairs or [(inputs, straight)])


def test_a_worker_takes_the_samples_of_its_next_iteration_while_it_computes() -> None:
    threads: list[tuple[str, int]] = []
    take = Table.take

    def noted(table: Table, samples: Any, device: torch.device) -> Any:
        threads.append((threading.current_thread().name.partition("_")[0], len(samples)))
        return take(table, samples, device)

    with patch.object(Table, "take", noted):
        trained(1)
    assert ("loader", 16) in threads  # of the second iteration, whose share is that of the first


def test_waiting_for_samples_is_reported_as_data_loading_and_not_as_compute() -> None:
    """Each batch is kept back for 20 ms, on the trainer's own thread: nothing is taken ahead."""
    straight = Table.take

    def late(table: Table, samples: np.ndarray, device: torch.device) -> Any:
        threading.Event().wait(0.02)
        return straight(table, samples, device)

    spec = job_spec(workers=1, workload=Workload(name="softmax-regression", prefetch=0))
    with patch.object(Table, "take", late), Cluster(spec, [(16,)] * 4) as cluster:
        cluster.run()
        reports = cluster.reports(0)
    assert len(reports) == 4
    for report in reports:
        assert report.data_s is not UNSET
        assert report.data_s >= 0.02
        assert report.compute_s >= 0.0
        assert report.processing_s == report.data_s + report.compute_s


@pytest.mark.parametrize("federated", [None, Federated(local_steps=3)])
@pytest.mark.parametrize("name", ["softmax-regression", "k-means"])
def test_a_replica_that_does_not_report_how_long_it_waited_reports_no_data_loading(
    name: str, federated: Federated | None
) -> None:
    workload = load_workload(Workload(name=name))
    replica = make_replica(Foreign("mine:factory", workload), job_spec(workers=1, servers=1, federated=federated))
    replica.update(batch(1, 2, 3))
    assert (loading_s_of(replica) is None) == (name == "k-means")


def test_what_a_loader_waited_rises_by_what_each_batch_took() -> None:
    slow = Slow()
    slow.may.clear()
    slow.entered = lambda: threading.Timer(0.05, slow.may.set).start()
    loader = Loader(slow, CPU, worth_s=0.0)
    loader.take(NOW)
    waited_s = loader.waited_s
    assert waited_s >= 0.05
    loader.take(NOW)
    assert loader.waited_s > waited_s


def test_what_is_taken_at_once_is_not_handed_to_a_thread() -> None:
    slow = Slow()
    loader = Loader(slow, CPU, worth_s=3600.0)
    for first in range(3):
        loader.expect([batch(first), batch(first + 1)])
        assert loader.take(batch(first))[1].tolist() == [first]
    assert {thread for thread, _ in slow.taken} == {"MainThread"}


def test_only_a_replica_that_can_prefetch_receives_the_coming_batches() -> None:
    workload = load_workload(Workload(name="softmax-regression"))
    replica = workload.replica()
    assert isinstance(replica, Prefetching)
    wrapped = Foreign("mine:factory", workload).replica()
    assert isinstance(wrapped, ForeignReplica)
    wrapped.prefetch([batch(1, 2)])
    assert wrapped.update(batch(1, 2)).samples == 2


def test_the_depth_of_prefetch_is_part_of_the_spec() -> None:
    assert Workload(name="mlp").prefetch == 1
    assert replace(Workload(name="mlp"), prefetch=0).prefetch == 0


@needs_gpu
def test_batches_for_a_gpu_are_copied_ahead_and_hold_the_same_values() -> None:
    device = torch.device("cuda")
    table = Table(features=torch.arange(2000.0).reshape(1000, 2), targets=torch.arange(1000))
    loader = Loader(table, device, worth_s=0.0)
    for first in range(0, 900, 10):
        wanted = [np.arange(at, at + 10) for at in (first, first + 10, first + 20)]
        loader.expect(wanted)
        inputs, targets = loader.take(wanted[0])
        straight, _ = table.take(wanted[0], device)
        assert torch.equal(inputs, straight)  # type: ignore[arg-type]
        assert targets.tolist() == wanted[0].tolist()
