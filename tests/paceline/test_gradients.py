"""The same gradient: ranks with any shares, heard at any time, train as one process does on the same samples."""

import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from itertools import groupby
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from controlplane.protocol.dividing import Pass
from paceline.errors import CannotAttach
from paceline.samples import Order
from paceline.watching import _param_groups
from tests.paceline.ranks import alone, paced, run_ranks, shared

SAMPLES, BATCH = 133, 4
Wrap = Callable[[nn.Module], nn.Module]
Build = Callable[[], nn.Module]


def data() -> torch.utils.data.TensorDataset:
    made = torch.Generator().manual_seed(3)
    inputs = torch.randn(SAMPLES, 5, generator=made, dtype=torch.float64)
    return torch.utils.data.TensorDataset(inputs, torch.randn(SAMPLES, 2, generator=made, dtype=torch.float64))


def model() -> nn.Module:
    torch.manual_seed(11)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2)).double()


class Layered(nn.Module):
    """Returns two tensors, of which one is computed from the other, as models that return a loss and its logits do."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.first, self.rest = module[:2], module[2:]  # type: ignore[index]

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.first(x)
        return {"hidden": hidden, "output": self.rest(hidden)}


def layered() -> nn.Module:
    return Layered(model())


def loss_of(outputs: Any, y: torch.Tensor) -> torch.Tensor:
    if isinstance(outputs, torch.Tensor):
        return nn.functional.mse_loss(outputs, y)
    return nn.functional.mse_loss(outputs["output"], y) + 0.1 * outputs["hidden"].square().mean()


def optimizer_of(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(module.parameters(), lr=0.05, weight_decay=0.1)


def as_one_process(passes: int, global_batch: int, seed: int, build: Build = model) -> list[torch.Tensor]:
    """All samples of each iteration at once."""
    module, inputs = build(), data().tensors
    optimizer, order = optimizer_of(module), Order(seed=seed, samples=SAMPLES)
    for number in range(passes):
        each = Pass(number=number, first=0, samples=SAMPLES, batch=global_batch)
        for k in range(each.iterations):
            chosen = order.indices(number, each.span(k))
            loss_of(module(inputs[0][chosen]), inputs[1][chosen]).backward()
            nn.utils.clip_grad_norm_(module.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
    return [parameter.detach() for parameter in module.parameters()]


def train(
    pacer: Any, module: nn.Module, *, passes: int, accumulate: int, workers: int, seed: int, sync: bool
) -> list[Any]:
    """The script of a rank; the shares that it had."""
    loader = pacer.loader(data(), BATCH, seed=seed, accumulate=accumulate, num_workers=workers)
    optimizer, seen = optimizer_of(module), []
    for _ in range(passes):
        for place, (x, y) in enumerate(loader):
            is_last = (place + 1) % accumulate == 0
            with module.no_sync() if hasattr(module, "no_sync") and not is_last and not sync else torch.enable_grad():
                loss = loss_of(module(x), y)
                (loss / accumulate).backward()
            if is_last:
                nn.utils.clip_grad_norm_(module.parameters(), 0.5)
                optimizer.step()
                optimizer.zero_grad()
                seen.append(pacer.shares)
            pacer.step(loss)
    return seen


def schedule(seed: int, rank: int, world: int, total: int) -> dict[int, Any]:
    """Shares that change at random, of which each rank hears some, at times of its own."""
    same, own = Random(seed), Random(seed * 100 + rank)
    heard = {}
    for number in range(1, 9):
        cuts = sorted(same.randint(0, total) for _ in range(world - 1))
        shares = [b - a for a, b in zip([0, *cuts], [*cuts, total], strict=True)]
        when = same.randint(0, 14) + own.randint(0, 3)
        if own.random() < 0.7:
            heard[when] = shared(number, *shares)
    return {
        when: heard[when]
        for when in sorted(heard)
        if heard[when].sequence >= max(each.sequence for earlier, each in heard.items() if earlier <= when)
    }


def trained(
    rank: int, world: int, cases: list[tuple[int, int, int, bool]], wrap: Wrap, build: Build = model
) -> list[Any]:
    results = []
    for seed, accumulate, workers, sync in cases:
        pacer, _ = paced(rank, world, schedule(seed, rank, world, world * BATCH * accumulate))
        module = pacer.watch(wrap(build()))
        pacer._gives_up = False  # gradients have the right weights also where shares would stay even
        seen = train(pacer, module, passes=2, accumulate=accumulate, workers=workers, seed=seed, sync=sync)
        parameters = [getattr(each, "full_tensor", lambda each=each: each)().detach() for each in module.parameters()]
        results.append(([tensor.numpy() for tensor in parameters], seen))
    return results


def check(
    cases: list[tuple[int, int, int, bool]], wrap: Wrap, world: int = 3, seconds: float = 60.0, build: Build = model
) -> None:
    ranks = run_ranks(trained, world, cases, wrap, build, seconds=seconds)
    for place, (seed, accumulate, *_) in enumerate(cases):
        expected = as_one_process(2, world * BATCH * accumulate, seed, build)
        assert all(rank[place][1] == ranks[0][place][1] for rank in ranks)
        assert len(set(ranks[0][place][1])) > 1, "shares never changed"
        for rank in ranks:
            for one, other in zip(rank[place][0], expected, strict=True):
                torch.testing.assert_close(torch.from_numpy(one), other, rtol=1e-5, atol=1e-5)


CASES = [(seed, 1, 0, False) for seed in range(6)] + [
    (7, 2, 0, False),
    (8, 3, 0, False),
    (9, 2, 0, True),
    (10, 1, 2, False),
]


def test_ddp_with_adamw_clipping_and_accumulation_equals_one_process() -> None:
    check(CASES, DistributedDataParallel)


class Direct(DistributedDataParallel):
    """A module whose ``forward`` a script calls by name: no hook of it runs."""

    def __call__(self, *inputs: Any) -> Any:
        return self.forward(*inputs)


@pytest.mark.parametrize(
    "wrap",
    [
        Direct,
        lambda module: DistributedDataParallel(module, find_unused_parameters=True),
        lambda module: DistributedDataParallel(module, gradient_as_bucket_view=True),
    ],
    ids=["forward by name", "unused parameters", "gradients as bucket views"],
)
def test_ddp_with_other_options_equals_one_process(wrap: Wrap) -> None:
    check([(1, 1, 0, False), (8, 3, 0, False)], wrap)


def test_ddp_with_a_static_graph_equals_one_process() -> None:
    """Not within ``no_sync``: its first iteration fails there, with or without Paceline."""
    check([(1, 1, 0, False), (9, 2, 0, True)], lambda module: DistributedDataParallel(module, static_graph=True))


SHARES = [(6, 4, 2), (4, 4, 4), (1, 3, 8), (4, 4, 4)]


def changing(rank: int, world: int, wrap: Wrap) -> list[Any]:
    heard = {8 * number: shared(number + 1, *shares) for number, shares in enumerate(SHARES)}
    pacer, _ = paced(rank, world, heard)
    module = pacer.watch(wrap(model()))
    seen = train(pacer, module, passes=3, accumulate=1, workers=0, seed=3, sync=False)
    return [[parameter.detach().numpy() for parameter in module.parameters()], seen]


@pytest.mark.parametrize("wrap", [DistributedDataParallel, Direct])
def test_shares_that_begin_uneven_and_become_even_twice_equal_one_process(wrap: Wrap) -> None:
    expected = as_one_process(3, 3 * BATCH, 3)
    for parameters, seen in run_ranks(changing, 3, wrap):
        assert [shares for shares, _ in groupby(seen)] == SHARES
        for one, other in zip(parameters, expected, strict=True):
            torch.testing.assert_close(torch.from_numpy(one), other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda module: DistributedDataParallel(torch.compile(module, backend="eager")),
        lambda module: torch.compile(DistributedDataParallel(module), backend="eager"),
    ],
)
def test_a_compiled_module_equals_one_process(wrap: Wrap) -> None:
    check([(1, 1, 0, False), (8, 3, 0, False)], wrap)


def by_inductor(module: nn.Module) -> Any:
    warnings.simplefilter("ignore")  # torch's own, in a process that ends with the test
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    return torch.compile(DistributedDataParallel(module))


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler (g++) for the CPU")
def test_a_module_that_is_compiled_to_machine_code_equals_one_process() -> None:
    check([(1, 1, 0, False)], by_inductor, world=2, seconds=110.0)


def sharded(module: nn.Module) -> nn.Module:
    mesh = torch.distributed.init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    for child in (module[0], module[2], module):  # type: ignore[index]
        fully_shard(child, mesh=mesh)
    return module


def test_fsdp2_with_adamw_clipping_and_accumulation_equals_one_process() -> None:
    check([(0, 1, 0, False), (1, 1, 0, False), (7, 2, 0, False)], sharded)


def on_another_device(rank: int, world: int) -> tuple[bool, list[str]]:
    said: list[str] = []
    pacer, _ = paced(rank, world)
    pacer._say = said.append  # type: ignore[method-assign]
    with torch.device("meta"):
        module = nn.Linear(4, 4)
    pacer.watch(sharded_layers(module))
    return pacer._gives_up, said


def test_fsdp2_on_another_device_than_the_cpu_keeps_equal_shares_and_says_why() -> None:
    for gives_up, (sentence,) in run_ranks(on_another_device, 2):
        assert gives_up
        assert "FSDP2 on a GPU runs its collectives in separate streams" in sentence


def of_another_torch(**state: Any) -> Any:
    return SimpleNamespace(_get_fsdp_state=lambda: SimpleNamespace(**state))


def test_parameters_of_fsdp2_are_found_as_earlier_torch_keeps_them_or_refused_with_the_version() -> None:
    group = object()
    assert _param_groups(of_another_torch(_fsdp_param_group=group)) == [group]
    assert _param_groups(of_another_torch(_fsdp_param_group=None)) == []
    with pytest.raises(CannotAttach, match=rf"fully_shard of torch {re.escape(torch.__version__)} .*; use torch 2"):
        _param_groups(of_another_torch())


def test_a_torch_without_fsdp2_watches_ddp() -> None:
    program = "import torch.distributed.fsdp as fsdp; del fsdp.FSDPModule; import paceline.watching"
    subprocess.run([sys.executable, "-c", program], check=True)


class Averaging(nn.Module):
    """A wrapper that no one knows: it averages gradients by itself."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        for parameter in module.parameters():
            parameter.register_post_accumulate_grad_hook(self._average)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return self.module(x)

    def _average(self, parameter: torch.Tensor) -> None:
        torch.distributed.all_reduce(parameter.grad)
        parameter.grad /= torch.distributed.get_world_size()


def test_an_unknown_wrapper_that_averages_equals_one_process() -> None:
    check([(0, 1, 0, False), (3, 1, 0, False)], Averaging)


def unknown(rank: int, world: int) -> tuple[set[Any], list[str]]:
    pacer, _ = paced(rank, world, {1: shared(1, 6, 2)})
    module = pacer.watch(Averaging(model()))
    seen = train(pacer, module, passes=1, accumulate=1, workers=0, seed=1, sync=False)
    return set(seen), [sentence for sentence in pacer._logged_sentences if "stay even" in sentence]


def test_an_unknown_wrapper_keeps_equal_shares_and_says_why_with_the_cure() -> None:
    """Its waiting counts as compute time: ranks would look equal, and shares follow chance."""
    for shares, (sentence,) in run_ranks(unknown, 2):
        assert shares == {(BATCH, BATCH)}
        assert sentence.startswith("shares stay even: watch() was given a module (Averaging) that is neither ")
        assert sentence.endswith("; pass what DistributedDataParallel or fully_shard returned")


def sharded_layers(module: nn.Module) -> nn.Module:
    return fully_shard(module, mesh=torch.distributed.init_device_mesh("cpu", (torch.distributed.get_world_size(),)))


@pytest.mark.parametrize("wrap", [DistributedDataParallel, sharded_layers, Averaging])
def test_outputs_that_are_computed_from_each_other_are_weighted_once(wrap: Wrap) -> None:
    check([(0, 1, 0, False), *([] if wrap is Averaging else [(8, 3, 0, False)])], wrap, build=layered)


def hooked(rank: int, world: int, compressing: bool) -> list[Any]:
    pacer, _ = paced(rank, world, schedule(2, rank, world, world * BATCH))
    module = DistributedDataParallel(model())
    if compressing:
        state = powerSGD_hook.PowerSGDState(process_group=None, matrix_approximation_rank=8, start_powerSGD_iter=2)
        pacer.watch(module, hook=powerSGD_hook.powerSGD_hook, hook_state=state)
    else:
        module.register_comm_hook(None, default_hooks.fp16_compress_hook)
        pacer.watch(module)
    train(pacer, module, passes=1, accumulate=1, workers=0, seed=2, sync=False)
    return [parameter.detach().numpy() for parameter in module.parameters()]


@pytest.mark.parametrize(("compressing", "tolerance"), [(True, 1e-5), (False, 0.2)])
def test_hooks_that_compress_work_on_weighted_gradients(compressing: bool, tolerance: float) -> None:
    """PowerSGD of a rank as high as the matrices is exact; fp16 is as good as its 11 bits, through AdamW."""
    expected = as_one_process(1, 3 * BATCH, 2)
    for rank in run_ranks(hooked, 3, compressing):
        for one, other in zip(rank, expected, strict=True):
            torch.testing.assert_close(torch.from_numpy(one), other, rtol=tolerance, atol=tolerance)


def refused(rank: int, world: int) -> str:
    try:
        alone(rank, world).watch(model(), hook=default_hooks.fp16_compress_hook)
    except CannotAttach as error:
        return str(error)
    return ""


def test_a_hook_for_a_module_without_ddp_is_refused_with_the_cure() -> None:
    for sentence in run_ranks(refused, 2):
        assert "hook is for DDP, but the module is a Sequential; omit it" in sentence


def watched_again(rank: int, world: int, wrap: Wrap) -> tuple[list[Any], set[Any]]:
    """As where layers are unfrozen: DDP is built again around the same parameters."""
    pacer, _ = paced(rank, world, schedule(2, rank, world, world * BATCH))
    inner = model()
    first = pacer.watch(wrap(inner))
    module = pacer.watch(first if wrap is sharded_layers else wrap(inner))
    seen = train(pacer, pacer.watch(module), passes=1, accumulate=1, workers=0, seed=2, sync=False)
    whole = [getattr(each, "full_tensor", lambda each=each: each)() for each in module.parameters()]
    return [each.detach().numpy() for each in whole], set(seen)


@pytest.mark.parametrize("wrap", [DistributedDataParallel, sharded_layers])
def test_a_module_that_is_watched_again_is_weighted_once(wrap: Wrap) -> None:
    expected = as_one_process(1, 3 * BATCH, 2)
    for parameters, shares in run_ranks(watched_again, 3, wrap):
        assert len(shares) > 1, "shares never changed"
        for one, other in zip(parameters, expected, strict=True):
            torch.testing.assert_close(torch.from_numpy(one), other, rtol=1e-5, atol=1e-5)


def hooked_again(rank: int, world: int) -> list[str]:
    pacer, module = alone(rank, world), DistributedDataParallel(model())
    for _ in range(2):
        pacer.watch(module, hook=default_hooks.fp16_compress_hook)
    return [hook.__name__ for hook, _ in module._comm_hooks]


def test_a_hook_that_is_given_again_is_registered_once() -> None:
    assert run_ranks(hooked_again, 2) == [["fp16_compress_hook"]] * 2


def collectives_of_one_watched_again(rank: int, world: int) -> list[str]:
    pacer, module = alone(rank, world), sharded_layers(model())
    for _ in range(2):
        pacer.watch(module)
    group = module._get_fsdp_state()._fsdp_param_groups[0]
    timed = [group._all_gather_comm, group._reduce_scatter_comm]
    return [type(each.collective).__name__ for each in timed]


def test_collectives_of_a_module_that_is_watched_again_are_timed_once() -> None:
    assert run_ranks(collectives_of_one_watched_again, 2) == [["DefaultAllGather", "DefaultReduceScatter"]] * 2


def ungoverned(rank: int, world: int) -> list[Any]:
    pacer = alone(rank, world)
    module = pacer.watch(DistributedDataParallel(model()))
    seen = train(pacer, module, passes=2, accumulate=1, workers=0, seed=5, sync=False)
    return [[parameter.detach().numpy() for parameter in module.parameters()], seen]


def test_without_a_control_plane_shares_are_even_and_the_gradient_is_the_same() -> None:
    expected = as_one_process(2, 2 * BATCH, 5)
    for parameters, seen in run_ranks(ungoverned, 2):
        assert set(seen) == {(BATCH, BATCH)}
        for one, other in zip(parameters, expected, strict=True):
            torch.testing.assert_close(torch.from_numpy(one), other, rtol=1e-5, atol=1e-5)
