"""Gradients weighted by samples, and when they were ready: for DDP in its hook, for others at the module's output.

A rank's mean gradient counts ``n W / N`` times where the engine averages over ``W`` ranks: ``n`` of the iteration's
``N`` samples are the rank's. So the sum is the mean over all samples, as one process would have it (LB-BSP Eq. 7).
"""

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from functools import partial
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves, tree_map

from controlplane.protocol.messages import Place
from paceline.errors import CannotAttach
from paceline.marks import Norms, Part

Hook = Callable[[Any, Any], torch.futures.Future[Any]]
"""Of DDP: ``hook(state, bucket)``, whose future has the average over the ranks."""


class Watcher(Protocol):
    """Provides the weights and keeps the time."""

    world: int

    def weight(self) -> float:
        """Weight of this rank's gradient in this iteration."""

    def micro_weight(self) -> float:
        """Weight of this micro-batch among those of its rank."""

    def norms(self) -> Norms | None:
        """Where the gradients' norms of this iteration are to be noted; None: nowhere."""

    def mark(self, part: Part) -> None:
        """The time since the previous mark was spent on ``part``."""

    def enter(self, place: Place) -> None:
        """The script is at this point now."""

    def summing(self) -> None:
        """All gradients of this backward were handed over: the script waits for their sum."""

    def summed(self) -> None:
        """That sum is complete at this rank; said only where the CPU waits for it."""

    def time_collective(self) -> Callable[[], None]:
        """Begin to time a collective that is waited for; the returned function is called at its end."""

    def give_up(self, reason: str) -> None:
        """Keep the shares as they are."""


class Unweighted:
    """A watcher of gradients whose loss is weighted already; a batch without a sample still has weight 0."""

    def __init__(self, watcher: Watcher) -> None:
        self.world = watcher.world
        self.mark, self.time_collective, self.give_up = watcher.mark, watcher.time_collective, watcher.give_up
        self.enter, self.summing, self.summed = watcher.enter, watcher.summing, watcher.summed
        self._weight = watcher.weight

    def weight(self) -> float:
        """1, or 0 where the rank has no sample."""
        return 1.0 if self._weight() else 0.0

    def micro_weight(self) -> float:
        """1: the loss is divided by the samples of all micro-batches."""
        return 1.0

    def norms(self) -> Norms | None:
        """Nowhere: a loss may be divided by tokens, which the loader does not know."""
        return None


def watch(module: nn.Module, watcher: Watcher, hook: Hook | None, state: Any) -> None:
    """Weigh the gradients of ``module``, and mark when they are ready.

    Raises:
        CannotAttach: if its gradients cannot be weighted.
    """
    inner = _unwrapped(module)
    if isinstance(inner, DistributedDataParallel):
        _watch_ddp(inner, watcher, hook, state)
        module.register_forward_hook(_Outputs(watcher, watcher.micro_weight))
        return
    if hook is not None:
        raise CannotAttach(f"watch(): hook is for DDP, but the module is a {type(inner).__name__}; omit it")
    if isinstance(inner, FSDPModule):
        _watch_fsdp(module, inner, watcher)
    elif isinstance(inner, FullyShardedDataParallel):
        module.register_forward_hook(_Outputs(watcher, _total(watcher)))
        watcher.give_up("FSDP1 reduces gradients during backward, which cannot be timed; use fully_shard (FSDP2)")
    else:
        module.register_forward_hook(_Outputs(watcher, _total(watcher), at_end=True))


def _unwrapped(module: nn.Module) -> nn.Module:
    """The module that ``torch.compile`` was given."""
    inner = getattr(module, "_orig_mod", module)
    return inner if isinstance(inner, nn.Module) else module


def _total(watcher: Watcher) -> Callable[[], float]:
    return lambda: watcher.weight() * watcher.micro_weight()


# -- DDP


def _watch_ddp(module: DistributedDataParallel, watcher: Watcher, hook: Hook | None, state: Any) -> None:
    size = module.process_group.size()
    if size != watcher.world:
        raise CannotAttach(
            f"watch(): DDP averages over {size} ranks, the job has {watcher.world}: shares can only be sent to all of"
            " them; wrap the module with the group of all ranks"
        )
    if getattr(module, "_comm_hooks", None):
        raise CannotAttach(
            "watch(): this module already has a communication hook, and DDP supports only one: pass it to watch(model,"
            " hook=powerSGD_hook, hook_state=state) instead of register_comm_hook()"
        )
    module.register_comm_hook(None, _ddp_hook(watcher, hook, state, module.process_group))
    module.register_forward_pre_hook(_Fresh(watcher))


def _ddp_hook(watcher: Watcher, hook: Hook | None, state: Any, group: Any) -> Hook:
    """DDP's hook for each bucket of gradients: the given hook, or the average, after weighting."""
    world = group.size()

    def summed(future: torch.futures.Future[Any]) -> Any:
        watcher.mark(Part.SUM)
        watcher.enter("compute")
        if hook is not None:
            return future.value()
        (total,) = future.value()
        if total.is_cpu:
            watcher.summed()
        return total

    def first(future: torch.futures.Future[Any]) -> Any:
        return future.value()[0]

    def measured(future: torch.futures.Future[Any], norms: Norms) -> Any:
        norms.add_mean(_norm(future.value()[0]))
        return future.value()

    def weighted(_: Any, bucket: Any) -> torch.futures.Future[Any]:
        watcher.mark(Part.COMPUTE)
        _weigh(bucket.buffer(), watcher.weight(), world if hook is None else 1)
        norms = watcher.norms() if hook is None else None
        if norms is not None:
            norms.add_own(_norm(bucket.buffer()), is_first=bucket.index() == 0)
        if hook is not None:
            future = hook(state, bucket)
        else:
            # On the CPU by the group itself, as small models notice; on a GPU, by the function that chooses streams.
            buffer = bucket.buffer()
            work = group.allreduce([buffer]) if buffer.is_cpu else dist.all_reduce(buffer, group=group, async_op=True)
            future = work.get_future()
            if norms is not None:
                future = future.then(partial(measured, norms=norms))
        watcher.mark(Part.SENDING)
        if bucket.is_last():
            watcher.summing()
            return future.then(summed)
        return future if hook is not None else future.then(first)

    weighted.__annotations__ = {
        "bucket": dist.GradBucket,  # type: ignore[attr-defined]
        "return": torch.futures.Future[torch.Tensor],
    }
    return weighted


class _Fresh:
    """Notices gradients that are left from an earlier backward: what is then summed is no mean over the shares."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(self, module: DistributedDataParallel, inputs: Any) -> None:
        norms = self._watcher.norms() if torch.is_grad_enabled() else None
        if norms is None:
            return
        left = next((each.grad for each in module.parameters() if each.grad is not None), None)
        norms.is_spoilt |= not module.require_backward_grad_sync
        if left is not None:
            norms.add_left(left.any())


def _norm(gradients: torch.Tensor) -> torch.Tensor:
    norm: torch.Tensor = torch.linalg.vector_norm(gradients, dtype=torch.promote_types(gradients.dtype, torch.float32))
    return norm


def _weigh(gradients: torch.Tensor, weight: float, world: int) -> None:
    """Multiply by the weight, divided by the number of ranks, in one pass; with equal shares as DDP does it."""
    if weight == 0.0:
        gradients.zero_()
    elif weight != 1.0:
        gradients.mul_(weight / world)
    elif world > 1:
        gradients.div_(world)


# -- wrappers without a hook


class _Outputs:
    """Weighs the gradients that flow back through a module's outputs, each once.

    One of several outputs may be computed from another, as a loss from logits: the gradient of the former reaches the
    latter inside the module, where it must not be weighted again. The script gets views of such outputs, and their
    gradients are weighted on their way into the module.
    """

    def __init__(self, watcher: Watcher, weight: Callable[[], float], *, at_end: bool = False) -> None:
        self._watcher, self._weight, self._at_end = watcher, weight, at_end
        self._is_first = True

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(self, module: nn.Module, inputs: Any, outputs: Any) -> Any:
        """None where the outputs stay as they are."""
        if not torch.is_grad_enabled():
            return None
        weight = self._weight()
        if weight == 1.0 and not (self._at_end or self._is_first):
            return None
        hooked = {id(tensor): tensor for tensor in _tensors(outputs) if tensor.requires_grad}
        if not hooked and self._is_first:
            self._watcher.give_up(
                f"{type(module).__name__} returns {type(outputs).__name__}, which contains no tensor with a"
                " gradient; return tensors in tuples, lists, mappings or dataclasses"
            )
        self._is_first = False
        views = hooked if len(hooked) <= 1 else {key: tensor.view_as(tensor) for key, tensor in hooked.items()}
        for tensor in views.values():
            tensor.register_hook(_Weighted(self._watcher, weight, at_end=self._at_end))  # type: ignore[no-untyped-call]
        return None if views is hooked else _replaced(outputs, views)


class _Weighted:
    """One output's gradient."""

    def __init__(self, watcher: Watcher, weight: float, *, at_end: bool) -> None:
        self._watcher, self._weight, self._at_end = watcher, weight, at_end

    def __call__(self, gradient: torch.Tensor) -> torch.Tensor:
        if self._at_end:
            engine = torch.autograd.Variable._execution_engine
            engine.queue_callback(lambda: self._watcher.mark(Part.COMPUTE))
        if self._weight == 1.0:
            return gradient
        return torch.zeros_like(gradient) if self._weight == 0.0 else gradient * self._weight


def _tensors(outputs: Any) -> Iterator[torch.Tensor]:
    for leaf in tree_leaves(outputs):
        if isinstance(leaf, torch.Tensor):
            yield leaf
        elif dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            for entry in dataclasses.fields(leaf):
                yield from _tensors(getattr(leaf, entry.name))
        elif isinstance(leaf, Mapping):
            yield from _tensors(list(leaf.values()))


def _replaced(outputs: Any, views: Mapping[int, torch.Tensor]) -> Any:
    """Such outputs with other tensors, by the ``id`` of those that they replace."""

    def replace(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return views.get(id(leaf), leaf)
        if isinstance(leaf, Mapping):
            mapping = copy.copy(leaf) if isinstance(leaf, MutableMapping) else dict(leaf)
            for key, value in leaf.items():
                mapping[key] = _replaced(value, views)
            return mapping
        if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            record = copy.copy(leaf)
            for entry in dataclasses.fields(leaf):
                object.__setattr__(record, entry.name, _replaced(getattr(leaf, entry.name), views))
            return record
        return leaf

    return tree_map(replace, outputs)


# -- FSDP2


def _watch_fsdp(module: nn.Module, inner: nn.Module, watcher: Watcher) -> None:
    """Its sums are made during backward, one by one: each wait for one is measured, on the CPU."""
    groups = [group for each in inner.modules() if isinstance(each, FSDPModule) for group in _param_groups(each)]
    for group in groups:
        size = group.mesh_info.mesh.size()
        if size != watcher.world:
            raise CannotAttach(
                f"watch(): fully_shard averages over a mesh of {size} ranks, the job has {watcher.world}: shares need"
                " one mesh of all ranks"
            )
    module.register_forward_hook(_Outputs(watcher, _total(watcher)))
    if any(parameter.device.type != "cpu" for parameter in inner.parameters()):
        watcher.give_up(
            "FSDP2 on a GPU runs its collectives in separate streams: events of the script's stream"
            " cannot separate a rank's compute time from its waiting time"
        )
        return
    for group in groups:
        group._all_gather_comm = _Timed(group._all_gather_comm, watcher)
        group._reduce_scatter_comm = _Timed(group._reduce_scatter_comm, watcher)


def _param_groups(module: FSDPModule) -> list[Any]:
    groups: list[Any] = module._get_fsdp_state()._fsdp_param_groups
    return groups


class _Timed:
    """A collective of FSDP2 that is timed."""

    def __init__(self, collective: Any, watcher: Watcher) -> None:
        self._collective, self._watcher = collective, watcher

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        end = self._watcher.time_collective()
        try:
            return self._collective(*arguments, **named)
        finally:
            end()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._collective, name)
