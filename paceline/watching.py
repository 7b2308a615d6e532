"""Gradients weighted by samples at the parameters, and when they were ready and summed.

A rank's mean gradient counts ``n W / N`` times where the engine averages over ``W`` ranks: ``n`` of the iteration's
``N`` samples are the rank's. So the sum is the mean over all samples, as one process would have it (LB-BSP Eq. 7).
"""

import time
from collections.abc import Callable, MutableMapping
from typing import Any, Final, Protocol

import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel
from torch.utils.weak import WeakIdKeyDictionary

from controlplane.protocol.messages import Place
from paceline.errors import CannotAttach
from paceline.forwards import before_forward
from paceline.marks import Norms, Part

Hook = Callable[[Any, Any], torch.futures.Future[Any]]
"""Of DDP: ``hook(state, bucket)``, whose future has the average over the ranks."""


TESTED: Final = "2.13"
"""The version of torch with which FSDP2, of which private attributes are read, is tested."""


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
        return
    if hook is not None:
        raise CannotAttach(f"watch(): hook is for DDP, but the module is a {type(inner).__name__}; omit it")
    if _is_fsdp2(inner):
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
    """Weigh the gradients before DDP sees them, and time its sum behind them: without a communication hook."""
    size = module.process_group.size()
    if size != watcher.world:
        raise CannotAttach(
            f"watch(): DDP averages over {size} ranks, the job has {watcher.world}: shares can only be sent to all of"
            " them; wrap the module with the group of all ranks"
        )
    if hook is not None and (hook, state) not in module._comm_hooks:
        module.register_comm_hook(state, hook)
    _Gradients(_total(watcher), _Sum(module, watcher).begin).watch_all(module)


class _Sum:
    """DDP's sum of the gradients of one backward: when it begins and ends, and their norms before and behind it.

    Callbacks of a backward run in the order in which they were queued. That of the first gradient runs before DDP's,
    which DDP queues with the last gradient, and waits for the sums in.
    """

    def __init__(self, module: DistributedDataParallel, watcher: Watcher) -> None:
        self._module, self._watcher = module, watcher
        self._norms: Norms | None = None

    def begin(self) -> Norms | None:
        """The first gradient of a backward is about to be accumulated; where the norms of all are to be noted."""
        _at_end(self._gradients_are_ready)
        self._norms = None if self._module._comm_hooks else self._watcher.norms()
        if self._norms is not None:
            left = next((each.grad for each in self._module.parameters() if each.grad is not None), None)
            self._norms.begin_backward(None if left is None else _norm(left))
        return self._norms

    def _gradients_are_ready(self) -> None:
        if not self._module.require_forward_param_sync:  # the forward was within ``no_sync``
            if self._norms is not None:
                self._norms.is_spoilt = True
            return
        self._watcher.mark(Part.COMPUTE)
        self._watcher.summing()
        _at_end(self._are_summed)

    def _are_summed(self) -> None:
        self._watcher.mark(Part.SUM)
        self._watcher.enter("compute")
        self._watcher.summed()
        if self._norms is not None:
            begin_s = time.perf_counter()
            means = [_norm(each.grad) for each in self._module.parameters() if each.grad is not None]
            self._norms.add(_norm_of(self._norms.own), _norm_of(means))
            self._norms.took_s = 2.0 * (time.perf_counter() - begin_s)  # those of the rank's own took as long


def _at_end(callback: Callable[[], None]) -> None:
    """Call back when the backward in progress has accumulated all gradients, and the callbacks before have run."""
    torch.autograd.Variable._execution_engine.queue_callback(callback)


def _norm(gradient: torch.Tensor) -> torch.Tensor:
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    norm: torch.Tensor = torch.linalg.vector_norm(values, dtype=torch.promote_types(values.dtype, torch.float32))
    return norm


def _norm_of(norms: list[torch.Tensor]) -> torch.Tensor:
    """The norm of several gradients, by theirs; 0 of none, as where the optimizer steps and frees them in backward."""
    return _norm(torch.stack([each.to(norms[0].device) for each in norms])) if norms else torch.zeros(())


# -- parameters


_hooks: MutableMapping[torch.Tensor, Any] = WeakIdKeyDictionary()
"""The hook of each watched parameter: it has one, also if it is watched again in another wrapper."""


class _Gradients:
    """Weighs the gradients that arrive at parameters, in each backward, before they are accumulated or reduced.

    So a loss may be computed from anything: several outputs, attributes of the module, gradients by its inputs. Where a
    parameter is watched again, the newest watch holds.

    Args:
        weight: of the batch.
        begin: called with the first gradient of a backward; returns where their norms are noted, if anywhere.
    """

    def __init__(self, weight: Callable[[], float], begin: Callable[[], Norms | None] = lambda: None) -> None:
        self._weight_of_batch, self._begin = weight, begin
        self.backward: int | None = None
        """The latest backward in which a gradient arrived, by its number in autograd; None before the first."""
        self._weight = 1.0
        self._norms: Norms | None = None
        """The weight and the norms in that one."""

    def watch_all(self, module: nn.Module) -> None:
        """Weigh the gradients of all parameters."""
        for parameter in module.parameters():
            self.watch(parameter)

    def watch(self, parameter: torch.Tensor) -> None:
        """Weigh the gradients of this one, also if it is frozen now and trained later."""
        if not (parameter.is_floating_point() or parameter.is_complex()):
            return  # it never has a gradient
        if (earlier := _hooks.pop(parameter, None)) is not None:
            earlier.remove()
        requires_grad = parameter.requires_grad
        parameter.requires_grad_(True)
        _hooks[parameter] = parameter.register_hook(self._weighted)  # type: ignore[no-untyped-call]
        parameter.requires_grad_(requires_grad)

    def _weighted(self, gradient: torch.Tensor) -> torch.Tensor:
        if (backward := torch._C._current_graph_task_id()) != self.backward:
            self.backward, self._weight = backward, self._weight_of_batch()
            self._norms = self._begin()
        if self._norms is not None:
            self._norms.own.append(_norm(gradient))
        if self._weight == 1.0:
            return gradient
        return torch.zeros_like(gradient) if self._weight == 0.0 else gradient * self._weight


def _watch_unknown(module: nn.Module, watcher: Watcher) -> None:
    _Gradients(_total(watcher)).watch_all(module)
    watcher.give_up(
        f"watch() was given a module ({type(module).__name__}) that is neither wrapped in DistributedDataParallel nor"
        " sharded by fully_shard, so the time that a rank waits for others cannot be told from compute time; pass what"
        " DistributedDataParallel or fully_shard returned"
    )


# -- FSDP


def _watch_fsdp1(module: nn.Module, watcher: Watcher) -> None:
    gradients = _Gradients(_total(watcher))
    for each in FullyShardedDataParallel.fsdp_modules(module):
        if each._handle is not None:
            gradients.watch(each._handle.flat_param)
    watcher.give_up("FSDP1 reduces gradients during backward, which cannot be timed; use fully_shard (FSDP2)")


def _watch_fsdp(inner: nn.Module, watcher: Watcher) -> None:
    """Its sums are made during backward, one by one: each wait for one is measured, on the CPU."""
    groups = [group for each in inner.modules() if _is_fsdp2(each) for group in _param_groups(each)]
    for group in groups:
        size = group.mesh_info.mesh.size()
        if size != watcher.world:
            raise CannotAttach(
                f"watch(): fully_shard averages over a mesh of {size} ranks, the job has {watcher.world}: shares need"
                " one mesh of all ranks"
            )
    gradients = _Gradients(_total(watcher))
    for each in inner.modules():
        if _is_fsdp2(each):
            before_forward(each, _Unsharded(_param_groups(each), gradients))
    if any(parameter.device.type != "cpu" for parameter in inner.parameters()):
        watcher.give_up(
            "FSDP2 on a GPU runs its collectives in separate streams: events of the script's stream"
            " cannot separate a rank's compute time from its waiting time"
        )
        return
    if not all(hasattr(group, "_all_gather_comm") for group in groups):
        watcher.give_up(f"the collectives of FSDP2 cannot be timed with torch {torch.__version__}; use torch {TESTED}")
        return
    for group in groups:
        group._all_gather_comm = _timed(group._all_gather_comm, watcher)
        group._reduce_scatter_comm = _timed(group._reduce_scatter_comm, watcher)


def _is_fsdp2(module: nn.Module) -> bool:
    """Whether ``fully_shard`` has sharded it; its class is in another place in each torch before 2.6."""
    return hasattr(type(module), "_get_fsdp_state")


def _param_groups(module: Any) -> list[Any]:
    state = module._get_fsdp_state()
    if hasattr(state, "_fsdp_param_groups"):
        groups: list[Any] = state._fsdp_param_groups
        return groups
    if hasattr(state, "_fsdp_param_group"):  # of torch 2.8, for example
        return [] if state._fsdp_param_group is None else [state._fsdp_param_group]
    raise CannotAttach(
        f"watch(): fully_shard of torch {torch.__version__} keeps its parameters where Paceline does not find them; use"
        f" torch {TESTED}, or DDP"
    )


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


def _timed(collective: Any, watcher: Watcher) -> "_Timed":
    """The collective, timed for ``watcher`` alone."""
    return _Timed(collective.collective if isinstance(collective, _Timed) else collective, watcher)


class _Timed:
    """A collective of FSDP2 that is timed."""

    def __init__(self, collective: Any, watcher: Watcher) -> None:
        self.collective, self._watcher = collective, watcher

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        end = self._watcher.time_collective()
        try:
            return self.collective(*arguments, **named)
        finally:
            end()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.collective, name)
