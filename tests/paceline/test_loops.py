"""Training loops of many shapes: each one, on ranks with any shares, trains as one process does."""

import copy
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from controlplane.protocol.dividing import Pass
from paceline.samples import Order
from tests.paceline.ranks import paced, run_ranks
from tests.paceline.test_gradients import (
    BATCH,
    SAMPLES,
    Averaging,
    Direct,
    Wrap,
    data,
    model,
    schedule,
    sharded_layers,
)

Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Loop:
    """A training loop: its modules, and what it does with a batch; ``scale``: 1 / micro-batches of an iteration."""

    build: Callable[[], list[nn.Module]]
    backward: Callable[[list[nn.Module], Batch, float], None]


def one_model() -> list[nn.Module]:
    return [model()]


def mean_square(modules: list[nn.Module], batch: Batch, scale: float) -> None:
    (functional.mse_loss(modules[0](batch[0]), batch[1]) * scale).backward()


def forward_twice(modules: list[nn.Module], batch: Batch, scale: float) -> None:
    """As contrastive training does: two views of each sample."""
    one, other = modules[0](batch[0]), modules[0](batch[0].flip(1))
    loss = functional.mse_loss(one, batch[1]) + functional.mse_loss(other, one)
    (loss * scale).backward()


def gradient_penalty(modules: list[nn.Module], batch: Batch, scale: float) -> None:
    """As WGAN-GP does: the loss has a gradient by the inputs in it."""
    x = batch[0].clone().requires_grad_()
    outputs = modules[0](x)
    (slope,) = torch.autograd.grad(outputs.sum(), x, create_graph=True)
    loss = functional.mse_loss(outputs, batch[1]) + 0.3 * slope.square().sum(1).mean()
    (loss * scale).backward()


def changed_in_place(modules: list[nn.Module], batch: Batch, scale: float) -> None:
    outputs = modules[0](batch[0])
    outputs.mul_(2.0)
    (functional.mse_loss(outputs, batch[1]) * scale).backward()


class KeepsLoss(nn.Module):
    """Keeps a part of the loss as an attribute, as mixtures of experts do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = model()
        self.extra: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.inner[:2](x)  # type: ignore[index]
        self.extra = hidden.square().mean()
        outputs: torch.Tensor = self.inner[2](hidden)  # type: ignore[index]
        return outputs


def kept_loss(modules: list[nn.Module], batch: Batch, scale: float) -> None:
    outputs = modules[0](batch[0])
    inner = modules[0] if isinstance(modules[0], KeepsLoss) else modules[0].module
    loss = functional.mse_loss(outputs, batch[1]) + 0.5 * inner.extra
    (loss * scale).backward()


class Distribution(nn.Module):
    """Returns an object in which no one looks for tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = model()

    def forward(self, x: torch.Tensor) -> torch.distributions.Normal:
        return torch.distributions.Normal(self.inner(x), torch.ones(2, dtype=torch.float64))


def likelihood(modules: list[nn.Module], batch: Batch, scale: float) -> None:
    (-modules[0](batch[0]).log_prob(batch[1]).mean() * scale).backward()


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = model()

    def forward(self, x: torch.Tensor) -> Any:
        return checkpoint(self.inner, x, use_reentrant=False)


def adversaries() -> list[nn.Module]:
    torch.manual_seed(5)
    judge = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 1)).double()
    return [model(), judge]


def adversarial(modules: list[nn.Module], batch: Batch, scale: float) -> None:
    """As a GAN does: two modules, and two backward passes of which the second goes through both."""
    made = modules[0](batch[0])
    real, fake = modules[1](batch[1]), modules[1](made.detach())
    ((functional.softplus(-real).mean() + functional.softplus(fake).mean()) * scale).backward()
    (functional.softplus(-modules[1](made)).mean() * scale).backward()


LOOPS = {
    "plain": Loop(one_model, mean_square),
    "forward twice": Loop(one_model, forward_twice),
    "gradient penalty": Loop(one_model, gradient_penalty),
    "in place": Loop(one_model, changed_in_place),
    "kept loss": Loop(lambda: [KeepsLoss()], kept_loss),
    "distribution": Loop(lambda: [Distribution()], likelihood),
    "checkpointed": Loop(lambda: [Checkpointed()], mean_square),
    "adversarial": Loop(adversaries, adversarial),
}


REFUSED_BY_FSDP = {"gradient penalty", "distribution"}
"""FSDP cannot differentiate twice, and finds tensors only in outputs of types that torch's trees know."""


def optimizers_of(modules: list[nn.Module]) -> list[torch.optim.Optimizer]:
    return [torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.5) for module in modules]


def as_one_process(loop: Loop, global_batch: int, passes: int) -> list[torch.Tensor]:
    modules, inputs, order = loop.build(), data().tensors, Order(seed=4, samples=SAMPLES)
    optimizers = optimizers_of(modules)
    for number in range(passes):
        each = Pass(number=number, first=0, samples=SAMPLES, batch=global_batch)
        for k in range(each.iterations):
            chosen = order.indices(number, each.span(k))
            loop.backward(modules, (inputs[0][chosen], inputs[1][chosen]), 1.0)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
    return [parameter.detach() for module in modules for parameter in module.parameters()]


def ahead_by(count: int, batches: Iterable[Batch]) -> Iterator[Batch]:
    """Takes so many batches before it gives the first, as loaders that copy them to a device meanwhile do."""
    held: deque[Batch] = deque()
    for batch in batches:
        held.append(batch)
        if len(held) > count:
            yield held.popleft()
    yield from held


@dataclass(frozen=True, kw_only=True)
class Way:
    """How a loop takes its batches."""

    accumulate: int = 1
    ahead: int = 0
    batch: int = BATCH
    passes: int = 1
    workers: int = 0
    in_evaluation_mode: bool = False
    least_shares: int = 2
    """So many different divisions the ranks must have had."""


def trained(rank: int, world: int, name: str, wrap: Wrap, way: Way) -> tuple[list[Any], set[Any], int]:
    loop, seed = LOOPS[name], 4
    pacer, _ = paced(rank, world, schedule(seed, rank, world, world * way.batch * way.accumulate))
    modules = [pacer.watch(wrap(module)) for module in loop.build()]
    pacer._gives_up &= wrap is fsdp1  # others have the right gradients with any shares
    optimizers, shares = optimizers_of(modules), set()
    loader = pacer.loader(data(), way.batch, seed=seed, accumulate=way.accumulate, num_workers=way.workers)
    for module in modules:
        module.train(not way.in_evaluation_mode)
    for _ in range(way.passes):
        for place, batch in enumerate(ahead_by(way.ahead, loader), start=1):
            is_last = place % way.accumulate == 0
            for module in modules:
                if hasattr(module, "set_requires_gradient_sync"):
                    module.set_requires_gradient_sync(is_last)
                if isinstance(module, DistributedDataParallel):
                    module.require_backward_grad_sync = is_last
            loop.backward(modules, batch, 1 / way.accumulate)
            if is_last:
                for optimizer in optimizers:
                    optimizer.step()
                    optimizer.zero_grad()
                shares.add(pacer.shares)
            pacer.step()
    whole = [tensor for module in modules for tensor in module.state_dict().values()]
    numbers = [getattr(tensor, "full_tensor", lambda tensor=tensor: tensor)().numpy() for tensor in whole]
    return numbers, shares, pacer.epoch


def fsdp1(module: nn.Module) -> nn.Module:
    return FullyShardedDataParallel(module, device_id=torch.device("cpu"), use_orig_params=True)


def check(name: str, wrap: Wrap, way: Way) -> None:
    expected = as_one_process(LOOPS[name], 3 * way.batch * way.accumulate, way.passes)
    for parameters, shares, passes in run_ranks(trained, 3, name, wrap, way):
        assert passes == way.passes
        assert len(shares) >= way.least_shares, "shares never changed"
        for one, other in zip(parameters, expected, strict=True):
            torch.testing.assert_close(torch.from_numpy(one), other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("name", LOOPS)
def test_ddp_trains_as_one_process(name: str, accumulate: int) -> None:
    check(name, DistributedDataParallel, Way(accumulate=accumulate))


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("name", sorted(LOOPS.keys() - REFUSED_BY_FSDP))
def test_fsdp2_trains_as_one_process(name: str, accumulate: int) -> None:
    check(name, sharded_layers, Way(accumulate=accumulate))


@pytest.mark.parametrize("name", sorted(LOOPS.keys() - REFUSED_BY_FSDP))
def test_fsdp1_trains_as_one_process(name: str) -> None:
    """Its shares stay even, but the last iteration of a pass is not."""
    check(name, fsdp1, Way(least_shares=1))


@pytest.mark.parametrize("name", LOOPS)
def test_an_unknown_wrapper_trains_as_one_process(name: str) -> None:
    check(name, Averaging, Way())


@pytest.mark.parametrize(
    "way",
    [
        Way(ahead=1),
        Way(ahead=3, passes=2),
        Way(ahead=1, accumulate=2, passes=2),
        Way(ahead=2, accumulate=3),
        Way(ahead=1, accumulate=2, workers=2),
        Way(ahead=1, in_evaluation_mode=True),
        Way(ahead=2, batch=40, passes=3, least_shares=1),
        Way(ahead=1, batch=50, passes=4, least_shares=1),
    ],
)
def test_a_loop_that_takes_batches_ahead_trains_as_one_process(way: Way) -> None:
    """Also passes of two batches and of one, which are taken as a whole before the first is computed."""
    check("plain", DistributedDataParallel, way)


@pytest.mark.parametrize("way", [Way(ahead=1), Way(ahead=1, accumulate=2, passes=2)])
def test_a_loop_that_takes_batches_ahead_and_calls_forward_by_name_trains_as_one_process(way: Way) -> None:
    check("plain", Direct, way)


class ThawedLater(nn.Module):
    """Trains its first layer from the fifth pass on."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.passes = model(), 0
        self.inner[0].requires_grad_(False)  # type: ignore[operator]

    def forward(self, x: torch.Tensor) -> Any:
        self.passes += 1
        if self.passes == 5:
            self.inner[0].requires_grad_(True)  # type: ignore[operator]
        return self.inner(x)


class AveragingLater(Averaging):
    """Averages the gradients that exist when ``_average`` is called, not by hooks."""

    def __init__(self, module: nn.Module) -> None:
        nn.Module.__init__(self)
        self.module = module


def thawed(rank: int, world: int) -> list[Any]:
    pacer, _ = paced(rank, world, schedule(4, rank, world, world * BATCH))
    module = pacer.watch(AveragingLater(ThawedLater()))
    pacer._gives_up = False  # gradients have the right weights also where shares would stay even
    (optimizer,) = optimizers_of([module])
    for x, y in pacer.loader(data(), BATCH, seed=4):
        functional.mse_loss(module(x), y).backward()
        for parameter in module.parameters():
            if parameter.grad is not None:
                module._average(parameter)
        optimizer.step()
        optimizer.zero_grad()
        pacer.step()
    return [parameter.detach().numpy() for parameter in module.parameters()]


def test_parameters_that_are_frozen_at_first_are_weighted_later() -> None:
    expected = as_one_process(Loop(lambda: [ThawedLater()], mean_square), 3 * BATCH, 1)
    for parameters in run_ranks(thawed, 3):
        for one, other in zip(parameters, expected, strict=True):
            torch.testing.assert_close(torch.from_numpy(one), other, rtol=1e-5, atol=1e-5)


def copied(rank: int, world: int) -> list[bool]:
    pacer, _ = paced(rank, world)
    module = pacer.watch(Averaging(model()))
    x = torch.ones(2, 5, dtype=torch.float64)
    copies = [copy.deepcopy(module), pickle.loads(pickle.dumps(module))]
    return [torch.equal(each(x), module(x)) for each in copies]


def test_a_watched_module_can_be_copied_and_pickled() -> None:
    assert run_ranks(copied, 2) == [[True, True]] * 2


class Counting(nn.Module):
    """Has a frozen parameter of whole numbers, as quantized models do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = model()
        self.count = nn.Parameter(torch.ones(2, dtype=torch.int8), requires_grad=False)

    def forward(self, x: torch.Tensor) -> Any:
        return self.inner(x)


def quantized(rank: int, world: int) -> bool:
    pacer, _ = paced(rank, world)
    return bool(pacer.watch(AveragingLater(Counting())).module.count.requires_grad)


def test_parameters_that_cannot_have_a_gradient_are_left_alone() -> None:
    assert run_ranks(quantized, 2) == [False, False]
