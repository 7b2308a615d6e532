"""All-reduce jobs on an accelerator: parameters, sums and optimizers stay there, and only a few numbers are read.

Most of it is tried on torch's ``meta`` device, whose tensors have no values: they cannot be copied to a host at all.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Event
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from controlplane.protocol.noise import EVERY
from controlplane.protocol.optimizers import OPTIMIZERS
from controlplane.protocol.orders import PeerAddress, Placement
from controlplane.protocol.spec import JobSpec, Optimizer, Workload
from tests.properties.test_training import GLOBAL_BATCH, single_process_run
from tests.support.gpus import needs_gpu
from tests.workers.reducing import ReducingCluster
from tests.workers.trainer.test_reduction import MOMENTUM, WIDE, reducing_spec
from tests.workers.workloads.test_modules import CLASSES, FEATURES, network
from workers.checkpoints.files import VALUES
from workers.collective.chunks import Sums
from workers.collective.group import HOST, Group, Place, over_of
from workers.collective.rendezvous import Meeting
from workers.trainer.checkpointing import _copy
from workers.trainer.parameters import LocalParameters
from workers.trainer.reduction import Reduction
from workers.transport.frames import Header, Op
from workers.workloads.local import Local
from workers.workloads.network import Network
from workers.workloads.replica import NetworkReplica
from workers.workloads.tensors import sums_of, values_of

WIDTH = 600
SHARE = 8
FEW = 64
"""More numbers than an iteration may exchange with the host, beside its samples."""


def build() -> nn.Module:
    """Of more than one stretch, with running statistics and a count of batches."""
    return nn.Sequential(
        nn.Linear(FEATURES, WIDTH), nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
    )


class Crossings(TorchDispatchMode):
    """Notes how many elements are copied between a device and the host, each time."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func._schema.name in ("aten::copy_", "aten::_to_copy"):
            other = args[1] if func._schema.name == "aten::copy_" else result
            if other.device.type != args[0].device.type:
                self.elements.append(other.numel())
        return result


class Pending:
    """A sum that is as it was."""

    def wait(self) -> None:
        """Nothing is under way."""


class Alone:
    """A group whose sums are those of this member; notes where each lies, and whether a backward pass runs."""

    size = 2

    def __init__(self, is_backward: Callable[[], bool]) -> None:
        self.sums: list[tuple[str, int, bool]] = []
        self._is_backward = is_backward

    def sum(self, vector: torch.Tensor, *, timeout_s: float) -> None:
        """As it is: both members have the same versions."""
        vector.fill_(0)

    def begin_sum(self, vector: torch.Tensor, *, timeout_s: float, dtype: torch.dtype | None = None) -> Pending:
        """As it is."""
        self.sums.append((vector.device.type, len(vector), self._is_backward()))
        return Pending()

    def leave(self) -> None:
        """No one else is there."""


class Link:
    """A control plane that says nothing."""

    def __init__(self) -> None:
        self.stopping = Event()

    def orders(self) -> None:
        """There are none."""


@contextmanager
def reading(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Reads of numbers of the meta device, by how many: each is a number 1."""
    read: list[int] = []
    plain = torch.Tensor.tolist

    def tolist(tensor: torch.Tensor) -> Any:
        if not tensor.is_meta:
            return plain(tensor)
        read.append(tensor.numel())
        return [1.0] * tensor.numel()

    with monkeypatch.context() as patched:
        patched.setattr(torch.Tensor, "tolist", tolist)
        yield read


def spec_of(**changes: Any) -> JobSpec:
    return reducing_spec(2, workload=Workload(name="mlp", dataset="digits"), **changes)


@pytest.fixture
def workload() -> Network:
    made: Network = network(build, device="meta")
    return made


@pytest.mark.parametrize(("measured", "reads"), [(2, 3), (EVERY, 5)], ids=["other", "with the noise scale"])
def test_an_iteration_copies_no_vector_between_device_and_host(
    workload: Network, monkeypatch: pytest.MonkeyPatch, measured: int, reads: int
) -> None:
    with reading(monkeypatch) as read:
        replica = workload.replica()
        spec = spec_of(optimizer=Optimizer(lr=0.1, momentum=0.9))
        values, sums = values_of(replica), sums_of(replica)
        backward = [False]
        group = Alone(lambda: backward[0])
        monkeypatch.setattr(Meeting, "meet", lambda self, is_over: group)
        original = torch.Tensor.backward

        def noted(tensor: torch.Tensor, *given: Any, **named: Any) -> None:
            backward[0] = True
            try:
                original(tensor, *given, **named)
            finally:
                backward[0] = False

        monkeypatch.setattr(torch.Tensor, "backward", noted)
        held = LocalParameters(workload, spec)
        link: Any = Link()
        reduction = Reduction(0, link, held, spec, sizes=workload.layout.sizes, host="127.0.0.1", device="meta")
        replica.report_progress(reduction.offer)
        peers = [PeerAddress(rank=rank, host="127.0.0.1", port=1) for rank in (0, 1)]
        reduction.adopt(Placement(incarnation=0, version=1, generation=1, blocks=[], servers=[], peers=peers))

        def iterate(iteration: int) -> None:
            stamp = Header(op=Op.PUSH, generation=1, iteration=iteration, samples=SHARE)
            reduction.pull(values, stamp)
            reduction.begin(iteration, sums, SHARE)
            replica.update(np.arange(SHARE))
            pending = reduction.blocks
            reduction.push(sums, pending, stamp)
            assert not pending

        for iteration in range(measured):  # the first moves the parameters to the device
            iterate(iteration)
        read.clear()
        group.sums.clear()
        norms: list[float] = []
        monkeypatch.setattr(reduction.noise, "add", lambda own, mean, **_: norms.extend((own, mean)))
        with Crossings() as crossings:
            iterate(measured)
        reduction.__exit__()
    assert (len(norms), len(read)) == (0 if measured % EVERY else 2, reads)
    samples = [SHARE * FEATURES, SHARE]
    assert sorted(n for n in crossings.elements if n in samples) == sorted(samples)
    others = [n for n in crossings.elements if n not in samples]
    assert sum(others) + sum(read) < FEW, (others, read)
    assert {device for device, _, _ in group.sums} == {"meta"}
    assert sum(elements for _, elements, _ in group.sums) == workload.layout.size + 5
    assert group.sums[0][2], "the back of the vector is summed while the front is computed"
    assert {each.device.type for each in held.rule.state().values() if each.dim()} == {"meta"}


def test_with_servers_the_vectors_of_a_device_go_through_the_host(
    workload: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reading(monkeypatch), pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        workload.replica().update(np.arange(SHARE))


def flat() -> nn.Module:
    """A matrix alone, which every optimizer takes."""
    return nn.Linear(FEATURES, CLASSES, bias=False)


@pytest.mark.parametrize("name", sorted(set(OPTIMIZERS) - {"asgd", "adafactor"}))  # their steps read their own tensors
def test_what_an_optimizer_remembers_follows_the_parameters_to_another_device(name: str) -> None:
    made: Network = network(flat, device="meta")
    held = LocalParameters(made, spec_of(optimizer=Optimizer(name=name, lr=0.1)))
    held.step(torch.ones(made.layout.size), 1)
    before = {key: each.shape for key, each in held.rule.state().items()}
    held.live_in(torch.empty(made.layout.size, device="meta"))
    after = held.rule.state()
    assert held.values.is_meta
    assert {key: each.shape for key, each in after.items()} == before
    assert all(each.is_meta for each in after.values() if each.dim())


def test_a_checkpoint_is_copied_to_the_host_and_begins_on_the_device() -> None:
    made: Network = network(build)
    held = LocalParameters(made, spec_of(optimizer=MOMENTUM))
    held.step(torch.ones(made.layout.size), 1)
    kept = _copy(held, held.rule.state(), 10, 20)
    assert {each.device.type for each in kept.tensors.values()} == {"cpu"}
    assert torch.equal(kept.tensors[VALUES], held.values[10:20])
    assert kept.tensors[VALUES].data_ptr() != held.values[10:20].data_ptr()


@pytest.mark.parametrize(
    ("identities", "over"),
    [
        (["a", "b"], "nccl"),
        (["a"], "nccl"),
        (["a", "b", "a"], "gloo"),
        (["a", HOST], "gloo"),
        ([HOST, HOST], "gloo"),
    ],
)
def test_nccl_sums_where_each_member_has_a_gpu_to_itself(identities: list[str], over: str) -> None:
    assert over_of(identities) == over


def test_memory_that_runs_short_while_sums_are_under_way_leaves_no_sample_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backs of both vectors are on their way; then all is computed again, in pieces."""
    spec, capacity, asked = reducing_spec(2, workload=WIDE, optimizer=MOMENTUM), 20, list[int]()
    add = NetworkReplica._add

    def tight(self: NetworkReplica, samples: np.ndarray) -> float:
        asked.append(len(samples))
        found = add(self, samples)
        if len(samples) > capacity:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return found

    monkeypatch.setattr(NetworkReplica, "_add", tight)
    with ReducingCluster(spec, [[24, 24]] * 4) as cluster:
        cluster.run()
        assert {report.ceiling for report in cluster.reports(0)} == {12}, "what the control plane learns from"
    expected = single_process_run(spec, [(k * GLOBAL_BATCH, GLOBAL_BATCH) for k in range(4)])
    assert max(asked) == 24
    np.testing.assert_allclose(cluster.parameters, expected, rtol=1e-5, atol=1e-5)


def test_a_stretch_for_whose_sum_memory_is_short_is_left_to_be_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    class Short:
        def begin_sum(self, vector: torch.Tensor, **options: Any) -> Any:
            raise torch.OutOfMemoryError("CUDA out of memory")

    sums = Sums(Short(), torch.zeros(10), [4, 0], timeout_s=1.0)  # type: ignore[arg-type]
    with pytest.raises(torch.OutOfMemoryError):
        sums.begin(slice(4, 10))
    assert sums.rest == [slice(4, 10), slice(0, 4)]


@needs_gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("workload", [Workload(name="cnn"), WIDE])
def test_a_job_on_gpus_ends_where_the_one_on_processors_does(workload: Workload, precision: Any) -> None:
    schedule = [[30, 18], [1, 47], [48, 0], [24, 24]]
    lesser = Workload(name=workload.name, dataset=workload.dataset, options=workload.options, precision=precision)
    with ReducingCluster(reducing_spec(2, workload=workload, optimizer=MOMENTUM), schedule) as plain:
        plain.run()
    spec, local = reducing_spec(2, workload=lesser, optimizer=MOMENTUM), Local(device="cuda")
    with ReducingCluster(spec, schedule, local=local) as on_gpus:
        on_gpus.run()
    apart = np.abs(on_gpus.parameters - plain.parameters).max()
    assert apart < (1e-4 if precision == "fp32" else 0.05)


@needs_gpu
@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_every_optimizer_steps_on_a_gpu_as_on_a_processor_and_continues_from_its_state(name: str) -> None:
    made: Network = network(flat)
    spec = spec_of(optimizer=Optimizer(name=name, lr=0.01))
    plain, moved = LocalParameters(made, spec), LocalParameters(made, spec)
    gradient = torch.linspace(-1.0, 1.0, made.layout.size)
    for held in (plain, moved):
        held.step(gradient.clone(), 1)
    moved.live_in(torch.empty(made.layout.size, device="cuda"))
    for _ in range(2):
        plain.step(gradient.clone(), 1)
        moved.step(gradient.cuda(), 1)
    assert torch.allclose(moved.values.cpu(), plain.values, rtol=1e-3, atol=1e-4)


@needs_gpu
def test_a_gpu_computes_the_same_where_its_vectors_stay() -> None:
    made: Network = network(partial(build), device="cuda")
    crossing, staying = made.replica(), made.replica()
    first = made.init(3)
    np.copyto(crossing.parameters, first)
    values_of(staying).copy_(torch.from_numpy(first))
    updates = [replica.update(np.arange(48)) for replica in (crossing, staying)]
    assert updates[0].loss == pytest.approx(updates[1].loss, rel=1e-5)
    np.testing.assert_allclose(sums_of(staying).cpu().numpy(), crossing.gradient, rtol=1e-4, atol=1e-4)


@needs_gpu
def test_nccl_sums_where_the_vector_lies() -> None:
    store = torch.distributed.HashStore()
    group = Group(store, Place(rank=0, size=1, host="127.0.0.1"), over="nccl")
    vector = torch.arange(1000.0, device="cuda")
    group.sum(vector, timeout_s=30.0)
    assert torch.equal(vector.cpu(), torch.arange(1000.0))
    group.leave()
