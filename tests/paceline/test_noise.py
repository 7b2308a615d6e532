"""The gradient-noise scale as real ranks report it: the same as of the gradients that they have."""

from typing import Any

import pytest
import torch
from msgspec import UNSET
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from controlplane.protocol.messages import IterationReport
from paceline import budget
from paceline.watching import _norm, _norm_of
from tests.paceline.ranks import paced, run_ranks, shared
from tests.support.gpus import needs_gpu

SIZE, SAMPLES, BATCH, ITERATIONS = 300, 4800, 8, 200
DEVIATION = 0.4
SCALE = SIZE * DEVIATION**2
"""Of the gradients below: the true one has the length 1."""


class Inputs(nn.Module):
    """Its gradient by each weight is the mean of an input: known for every sample. In buckets of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ParameterList([nn.Parameter(torch.zeros(SIZE // 3)) for _ in range(3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ torch.cat([*self.parts])


def inputs() -> torch.Tensor:
    chance = torch.Generator().manual_seed(5)
    return SIZE**-0.5 + DEVIATION * torch.randn(SAMPLES, SIZE, generator=chance)


def reported(
    rank: int, world: int, accumulate: int, weigh: bool, backwards: int, zeroes: bool = True, device: str = "cpu"
) -> list[Any]:
    """The noise scales that a rank reports; shares are uneven from the first iterations on."""
    budget.PART = 1.0  # type: ignore[misc]  # measured as often as at most, however short the iterations are
    pacer, script = paced(rank, world, {1: shared(1, 12, 8, 4)} if rank != 1 else {})
    module = pacer.watch(DistributedDataParallel(Inputs().to(device), bucket_cap_mb=1e-4), weigh=weigh)
    loader = pacer.loader(torch.utils.data.TensorDataset(inputs()), BATCH // accumulate, accumulate=accumulate)
    for (x,) in loader:
        for _ in range(backwards):
            (module(x.to(device)).mean() / accumulate).backward()
        if zeroes:
            module.zero_grad()
        pacer.step(torch.tensor(1.0))
        if pacer.iteration == ITERATIONS:
            break
    pacer.close()
    return [each.noise_scale for each in script.all_said(IterationReport)]


def test_ranks_with_uneven_shares_report_the_scale_of_their_gradients() -> None:
    for found in run_ranks(reported, 3, 1, True, 1):
        assert set(found[:72]) == {UNSET}
        assert found[-1] == pytest.approx(SCALE, rel=0.3)


@needs_gpu
def test_ranks_on_gpus_report_the_scale_of_their_gradients() -> None:
    for found in run_ranks(reported, 3, 1, True, 1, True, "cuda:0", seconds=120.0):
        assert found[-1] == pytest.approx(SCALE, rel=0.3)


@needs_gpu
def test_on_gpus_as_well_gradients_that_are_left_are_not_measured() -> None:
    for found in run_ranks(reported, 3, 1, True, 1, False, "cuda:0", seconds=120.0):
        assert set(found) == {UNSET}


@pytest.mark.parametrize(
    "changes",
    [(2, True, 1), (1, False, 1), (1, True, 2), (1, True, 1, False)],
    ids=["accumulates", "is weighted by itself", "two backwards", "gradients are left"],
)
def test_where_gradients_are_no_means_over_the_shares_nothing_is_reported(changes: tuple[Any, ...]) -> None:
    for found in run_ranks(reported, 3, *changes):
        assert set(found) == {UNSET}


def test_the_norm_of_a_sparse_gradient_counts_each_element_once() -> None:
    gradient = torch.sparse_coo_tensor(
        torch.tensor([[0, 0, 2]]), torch.tensor([1.0, 2.0, 4.0]), (4,), check_invariants=True
    )
    assert float(_norm(gradient)) == 5.0


def test_several_norms_of_any_precision_become_one_and_none_is_zero() -> None:
    assert float(_norm_of([torch.tensor(3.0), torch.tensor(4.0, dtype=torch.float64)])) == 5.0
    assert float(_norm_of([])) == 0.0
