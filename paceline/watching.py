"""Gradients weighted by samples, and when they were ready: for DDP in its hook, for others at the parameters.

A rank's mean gradient counts ``n W / N`` times where the engine averages over ``W`` ranks: ``n`` of the iteration's
``N`` samples are the rank's. So the sum is the mean over all samples, as one process would have it (LB-BSP Eq. 7).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

from controlplane.protocol.messages import Place
from paceline.errors import CannotAttach
from paceline.forwards import before_forward
from paceline.marks import Norms, Part

Hook = Callable[[Any, Any], torch.futures.Future[Any]]
"""Of DDP: ``hook(state, bucket)``, whose future has the average over the ranks."""


FORWARDS_WITHOUT_GRADIENT: Final = 16
"""Passes of an unknown wrapper after which a gradient must have reached a parameter."""


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
        _watch_micro_batches(module, watcher)
        return
    if hook is not None:
        raise CannotAttach(f"watch(): hook is for DDP, but the module is a {type(inner).__name__}; omit it")
    if isinstance(inner, FSDPModule):
        _watch_fsdp(inner, watcher)
    elif isinstance(inner, FullyShardedDataParallel):
        _watch_fsdp1(inner, watcher)
    else:
        _watch_unknown(inner, watcher)


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


# -- parameters


class _Gradients:
    """Weighs the gradients that arrive at parameters, in each backward, before they are accumulated or reduced.

    So a loss may be computed from anything: several outputs, attributes of the module, gradients by its inputs.
    """

    def __init__(self, watcher: Watcher, weight: Callable[[], float], *, at_end: bool = False) -> None:
        self._watcher, self._weight_of_batch, self._at_end = watcher, weight, at_end
        self.backward: int | None = None
        """The latest backward in which a gradient arrived, by its number in autograd; None: none has arrived."""
        self._weight = 1.0
        """The weight in that one."""

    def watch(self, parameter: torch.Tensor) -> None:
        """Weigh the gradients of this one, also if it is frozen now and trained later."""
        if not (parameter.is_floating_point() or parameter.is_complex()):
            return  # it never has a gradient
        requires_grad = parameter.requires_grad
        parameter.requires_grad_(True)
        parameter.register_hook(self._weighted)  # type: ignore[no-untyped-call]
        parameter.requires_grad_(requires_grad)

    def _weighted(self, gradient: torch.Tensor) -> torch.Tensor:
        if (backward := torch._C._current_graph_task_id()) != self.backward:
            self.backward, self._weight = backward, self._weight_of_batch()
            if self._at_end:
                torch.autograd.Variable._execution_engine.queue_callback(lambda: self._watcher.mark(Part.COMPUTE))
        if self._weight == 1.0:
            return gradient
        return torch.zeros_like(gradient) if self._weight == 0.0 else gradient * self._weight


def _watch_micro_batches(module: nn.Module, watcher: Watcher) -> None:
    """Weigh the micro-batches of an iteration, which DDP's hook sees as one gradient, once two of them differ."""
    gradients = _Gradients(watcher, watcher.micro_weight)
    parameters = list(module.parameters())

    def begin() -> None:
        if parameters and watcher.micro_weight() != 1.0:
            while parameters:
                gradients.watch(parameters.pop())

    before_forward(module, begin)


def _watch_unknown(module: nn.Module, watcher: Watcher) -> None:
    gradients = _Gradients(watcher, _total(watcher), at_end=True)
    for parameter in module.parameters():
        gradients.watch(parameter)
    forwards = iter(range(FORWARDS_WITHOUT_GRADIENT))

    def check() -> None:
        if next(forwards, None) == FORWARDS_WITHOUT_GRADIENT - 1 and gradients.backward is None:
            watcher.give_up(
                f"no gradient has reached a parameter of the {type(module).__name__} in its first"
                f" {FORWARDS_WITHOUT_GRADIENT} passes; pass the module that is trained to watch()"
            )

    before_forward(module, check)


# -- FSDP


def _watch_fsdp1(module: nn.Module, watcher: Watcher) -> None:
    gradients = _Gradients(watcher, _total(watcher))
    for each in FullyShardedDataParallel.fsdp_modules(module):
        if each._handle is not None:
            gradients.watch(each._handle.flat_param)
    watcher.give_up("FSDP1 reduces gradients during backward, which cannot be timed; use fully_shard (FSDP2)")


def _watch_fsdp(inner: nn.Module, watcher: Watcher) -> None:
    """Its sums are made during backward, one by one: each wait for one is measured, on the CPU."""
    groups = [group for each in inner.modules() if isinstance(each, FSDPModule) for group in _param_groups(each)]
    for group in groups:
        size = group.mesh_info.mesh.size()
        if size != watcher.world:
            raise CannotAttach(
                f"watch(): fully_shard averages over a mesh of {size} ranks, the job has {watcher.world}: shares need"
                " one mesh of all ranks"
            )
    gradients = _Gradients(watcher, _total(watcher))
    for each in inner.modules():
        if isinstance(each, FSDPModule):
            before_forward(each, _Unsharded(_param_groups(each), gradients))
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


class _Unsharded:
    """Watches the whole parameters of an FSDP2 module, which it makes before its first forward."""

    def __init__(self, groups: list[Any], gradients: _Gradients) -> None:
        self._groups, self._gradients = groups, gradients
        self._watched: dict[Any, torch.Tensor] = {}

    def __call__(self) -> None:
        for group in self._groups:
            for each in group.fsdp_params:
                parameter = each._unsharded_param
                if self._watched.get(each) is not parameter:
                    self._gradients.watch(parameter)
                    self._watched[each] = parameter


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
