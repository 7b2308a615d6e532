"""Laws of optimizers: on blocks, however cut and wherever they move, the values are those of torch on the whole."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.protocol.optimizers import OPTIMIZERS
from controlplane.protocol.training import Clip, Group, Optimizer, Schedule
from tests.support.examples import examples
from workers.checkpoints.files import STATE, VALUES, Manifest, read_block, write_manifest, write_piece
from workers.server.block_transfer import BlockState, Open, pack, read_manifest, unpack
from workers.workloads.layout import Layout
from workers.workloads.rules import GradientRule

SHAPES = {"first.weight": (5, 3), "first.bias": (5,), "norm.weight": (5,), "head.weight": (2, 5), "head.bias": (2,)}
LAYOUT = Layout.of(SHAPES, {"norm.running_mean": ((5,), "float32")})
SIZE, STEPS, SAMPLES = LAYOUT.edge, 7, 6

VARIANTS: dict[str, list[dict[str, Any]]] = {
    "sgd": [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}],
    "adam": [{}, {"amsgrad": True, "weight_decay": 0.01}],
    "adamw": [{"betas": [0.8, 0.95]}],
    "rmsprop": [{}, {"momentum": 0.5, "centered": True}],
    "adagrad": [{"initial_accumulator_value": 0.1, "lr_decay": 0.01}],
    "asgd": [{"t0": 2.0, "lambd": 0.01}],
}
ELEMENT_WISE = [
    (name, options) for name, entry in OPTIMIZERS.items() if entry.element_wise for options in VARIANTS.get(name, [{}])
]
SCHEDULE = Schedule(name="cosine", over=6, warm_up=2, floor=0.1)


def gradient(step: int) -> torch.Tensor:
    return torch.sin(torch.arange(LAYOUT.size) * (step + 1.3)) * 4


def torch_run(optimizer: Optimizer) -> torch.Tensor:
    """The same training as anybody would write it: parameters of their shapes, torch's groups and scheduler."""
    module = {name: torch.ones(shape, requires_grad=True) for name, shape in SHAPES.items()}
    kind: Any = getattr(torch.optim, OPTIMIZERS[optimizer.name].torch)
    options = {key: tuple(value) if isinstance(value, list) else value for key, value in optimizer.options.items()}
    biases = [each for name, each in module.items() if name.endswith("bias")]
    others = [each for name, each in module.items() if not name.endswith("bias")]
    groups: list[Any] = (
        [{"params": others}, {"params": biases, "lr": 0.02}]
        if optimizer.groups
        else [{"params": list(module.values())}]
    )
    made = kind(groups, lr=0.05, **options)
    rates = torch.optim.lr_scheduler.LambdaLR(made, warm_up_and_cosine)
    for step in range(STEPS):
        for entry in LAYOUT.entries:
            if entry.kind == "parameter":
                own = gradient(step)[entry.start : entry.stop].view(entry.shape) / SAMPLES
                module[entry.name].grad = own
        if optimizer.clip is not None and optimizer.clip.value is not None:
            torch.nn.utils.clip_grad_value_(module.values(), optimizer.clip.value)
        if optimizer.clip is not None and optimizer.clip.norm is not None:
            torch.nn.utils.clip_grad_norm_(module.values(), optimizer.clip.norm)
        made.step()
        rates.step()
    return torch.cat([each.detach().reshape(-1) for each in module.values()])


def warm_up_and_cosine(step: int) -> float:
    done = min(1.0, max(0, step - 2) / 6)
    return float(min(1.0, (step + 1) / 2) * (0.1 + 0.9 * 0.5 * (1 + np.cos(np.pi * done))))


class Blocks:
    """A model in blocks, each with its rule, as servers hold it."""

    def __init__(self, optimizer: Optimizer, cuts: list[int]) -> None:
        self.optimizer, self.blocks = optimizer, dict[int, tuple[torch.Tensor, GradientRule]]()
        for start, stop in bounds(cuts):
            self.begin(start, torch.ones(stop - start))

    def begin(self, start: int, values: torch.Tensor) -> GradientRule:
        rule = GradientRule(values, self.optimizer, layout=LAYOUT, start=start)
        self.blocks[start] = values, rule
        return rule

    def step(self, at: int, norm: float | None) -> None:
        for start, (values, rule) in self.blocks.items():
            rule.apply(gradient(at)[start : start + len(values)].clone(), SAMPLES, norm=norm)

    def move(self, start: int) -> None:
        """As it travels to another server."""
        values, rule = self.blocks[start]
        state = BlockState(values=values, start=start, steps=1, state=rule.state(), open=Open(iteration=1))
        manifest, arrays = pack(state)
        manifest, arrays = pack(state)
        copies = [memoryview(bytearray(array)) for array in arrays]
        found = unpack(read_manifest(manifest), copies)
        self.begin(start, found.values).restore(found.state)

    def leave_to_readers(self, start: int) -> None:
        """As where someone still reads the values."""
        values, _ = self.blocks[start]
        values.data = values.clone()

    def save_and_cut(self, folder: Any, cuts: list[int]) -> None:
        """As a checkpoint is kept, and begun with by a life that has other blocks."""
        pieces = []
        for start, (values, rule) in self.blocks.items():
            tensors = {VALUES: values} | {f"{STATE}{name}": each for name, each in rule.state().items()}
            pieces.append(write_piece(folder, start, start + len(values), 1, tensors))
        manifest: dict[str, Any] = {"workload": {}, "optimizer": {}, "pieces": pieces, "elements": LAYOUT.size}
        write_manifest(folder, Manifest(job=1, name="x", iteration=1, position=0, seed=0, **manifest))
        self.blocks = {}
        for start, stop in bounds(cuts):
            tensors, _ = read_block(folder, start, stop)
            state = {name.removeprefix(STATE): each for name, each in tensors.items() if name != VALUES}
            self.begin(start, tensors[VALUES]).restore(state)

    @property
    def values(self) -> torch.Tensor:
        return torch.cat([self.blocks[start][0] for start in sorted(self.blocks)])


def bounds(cuts: list[int]) -> list[tuple[int, int]]:
    edges = sorted({0, LAYOUT.size, *cuts})
    return list(itertools.pairwise(edges))


CUTS = st.lists(st.integers(1, LAYOUT.size - 1), max_size=5)


@pytest.mark.parametrize("in_groups", [False, True])
@pytest.mark.parametrize(("name", "options"), ELEMENT_WISE)
@settings(max_examples=5, deadline=None)
@given(cuts=CUTS, again=CUTS, moved_at=st.integers(0, STEPS - 1), cut_at=st.integers(0, STEPS - 1), pick=st.integers(0))
def test_blocks_however_cut_and_moved_are_one_run_of_torch(
    name: str,
    options: dict[str, Any],
    in_groups: bool,
    cuts: list[int],
    again: list[int],
    moved_at: int,
    cut_at: int,
    pick: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    groups = [Group(parameters="*.bias", lr=0.02)] if in_groups else []
    optimizer = Optimizer(name=name, lr=0.05, options=options, groups=groups, schedule=SCHEDULE)
    blocks = Blocks(optimizer, cuts)
    for step in range(STEPS):
        starts = sorted(blocks.blocks)
        if step == moved_at:
            blocks.move(starts[pick % len(starts)])
        if step == cut_at:
            blocks.save_and_cut(tmp_path_factory.mktemp("whole"), again)
        blocks.leave_to_readers(sorted(blocks.blocks)[0])
        blocks.step(step, None)
    torch.testing.assert_close(blocks.values[:SIZE], torch_run(optimizer), rtol=1e-6, atol=1e-6)
    assert torch.equal(blocks.values[SIZE:], torch.ones(LAYOUT.size - SIZE)), "no optimizer touches a buffer"


@pytest.mark.parametrize("clip", [Clip(value=0.3), Clip(norm=0.7), Clip(norm=1e6)])
@given(cuts=CUTS)
@settings(max_examples=examples(8), deadline=None)
def test_clipping_is_torchs_whatever_the_blocks_where_all_know_the_norm(clip: Clip, cuts: list[int]) -> None:
    optimizer = Optimizer(name="adamw", lr=0.05, clip=clip, schedule=SCHEDULE)
    blocks = Blocks(optimizer, cuts)
    for step in range(STEPS):
        squares = [
            rule.squared_norm(gradient(step)[start : start + len(values)], SAMPLES)
            for start, (values, rule) in blocks.blocks.items()
        ]
        blocks.step(step, sum(squares) ** 0.5)
    torch.testing.assert_close(blocks.values[:SIZE], torch_run(optimizer), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["adafactor", "muon"])
def test_what_needs_whole_tensors_is_torchs_on_the_whole_vector(name: str) -> None:
    rest = [Group(parameters=["*.bias", "norm.*"], name="adamw", lr=0.02)] if name == "muon" else []
    optimizer = Optimizer(name=name, lr=0.05, groups=rest)
    blocks = Blocks(optimizer, [])
    module = {entry: torch.ones(shape, requires_grad=True) for entry, shape in SHAPES.items()}
    matrices = [each for each in module.values() if name != "muon" or each.dim() == 2]
    others = [each for each in module.values() if name == "muon" and each.dim() != 2]
    kind: Any = getattr(torch.optim, OPTIMIZERS[name].torch)
    made = [kind(matrices, lr=0.05), *([torch.optim.AdamW(others, lr=0.02)] if others else [])]
    for step in range(STEPS):
        if step == 3:
            blocks.move(0)
        blocks.step(step, None)
        for entry in LAYOUT.entries[:-1]:
            module[entry.name].grad = gradient(step)[entry.start : entry.stop].view(entry.shape) / SAMPLES
        for each in made:
            each.step()
    expected = torch.cat([each.detach().reshape(-1) for each in module.values()])
    torch.testing.assert_close(blocks.values[:SIZE], expected, rtol=1e-6, atol=1e-6)
