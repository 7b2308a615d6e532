"""``fill`` in a script: passes with larger batches, learning rates that follow, and the gradient of one process."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from paceline.errors import CannotAttach
from paceline.samples import Order
from tests.paceline.ranks import alone, paced, run_ranks, shared
from tests.paceline.test_gradients import data, model

SAMPLES, BATCH, LR = 133, 4, 0.05
SIZES = [12, 18, 36, 18]
"""Samples per iteration of each pass, as the schedule asks for them."""

SCHEDULE = {
    1: shared(1, 6, 3, 3, fill_batch=18, fill_rule="linear"),
    14: shared(2, 9, 6, 3, fill_batch=36, fill_rule="linear"),
    21: shared(3, 18, 12, 6, fill_batch=18, fill_rule="linear"),
}


def trained(rank: int, world: int, workers: int, accumulate: int, follows: bool = True) -> Any:
    """All passes; the samples of each iteration, learning rates seen by a scheduler, and the parameters."""
    pacer, script = paced(rank, world, SCHEDULE if rank != 1 else {})
    module = pacer.watch(DistributedDataParallel(model()))
    optimizer = torch.optim.AdamW(module.parameters(), lr=LR)
    if follows:
        pacer.scale_lr(optimizer)
    whole = torch.utils.data.TensorDataset(*data().tensors, torch.arange(SAMPLES))
    loader = pacer.loader(whole, BATCH // accumulate, seed=7, accumulate=accumulate, num_workers=workers)
    passes: list[list[list[int]]] = []
    scales = []
    for _ in SIZES:
        passes.append([])
        for place, (x, y, numbers) in enumerate(loader):
            draw = pacer._draw
            if draw.micro == 0:
                passes[-1].append([])
            passes[-1][-1] += numbers.tolist()[: draw.size]
            (nn.functional.mse_loss(module(x), y) / accumulate).backward()
            if (place + 1) % accumulate == 0:
                scales.append(pacer.lr_scale)
                optimizer.step()
                optimizer.zero_grad()
                assert optimizer.param_groups[0]["lr"] == LR
            pacer.step()
    return passes, scales, [parameter.detach().numpy() for parameter in module.parameters()], script.said[0].scales_lr


def as_one_process() -> list[torch.Tensor]:
    """All samples of each iteration at once, with the learning rate that the rule gives."""
    module, inputs = model(), data().tensors
    order = Order(seed=7, samples=SAMPLES)
    optimizer = torch.optim.AdamW(module.parameters(), lr=LR)
    for number, size in enumerate(SIZES):
        optimizer.param_groups[0]["lr"] = LR * size / SIZES[0]
        for start in range(0, SAMPLES, size):
            chosen = order._permutation(number)[start : start + size].tolist()
            nn.functional.mse_loss(module(inputs[0][chosen]), inputs[1][chosen]).backward()
            optimizer.step()
            optimizer.zero_grad()
    return [parameter.detach() for parameter in module.parameters()]


@pytest.mark.parametrize(("workers", "accumulate"), [(0, 1), (2, 1), (0, 2)])
def test_passes_grow_and_shrink_each_sample_is_taken_once_and_the_gradient_is_that_of_one_process(
    workers: int, accumulate: int
) -> None:
    ranks = run_ranks(trained, 3, workers, accumulate)
    for number, size in enumerate(SIZES):
        counted = Counter(sample for rank in ranks for batch in rank[0][number] for sample in batch)
        assert counted == dict.fromkeys(range(SAMPLES), 1)
        together = [sum(len(rank[0][number][k]) for rank in ranks) for k in range(len(ranks[0][0][number]))]
        assert together == [size] * (SAMPLES // size) + [SAMPLES % size]
    lengths = [-(-SAMPLES // size) for size in SIZES]
    expected = [size / SIZES[0] for size, length in zip(SIZES, lengths, strict=True) for _ in range(length)]
    for rank in ranks:
        assert rank[1] == expected
        assert rank[3]
        for one, other in zip(rank[2], as_one_process(), strict=True):
            torch.testing.assert_close(torch.from_numpy(one), other, rtol=1e-5, atol=1e-5)


def test_a_script_whose_learning_rate_does_not_follow_keeps_its_batch() -> None:
    for passes, scales, _, said in run_ranks(trained, 3, 0, 1, False):
        assert not said
        assert set(scales) == {1.0}
        assert {len(each) for each in passes} == {-(-SAMPLES // 12)}


def test_a_learning_rate_that_follows_too_late_or_of_what_is_no_optimizer_is_refused() -> None:
    pacer = alone(0, 1)
    with pytest.raises(CannotAttach, match="found a list, expected optimizers of torch"):
        pacer.scale_lr([])
    for _ in pacer.loader(range(8), 4):
        with pytest.raises(CannotAttach, match="before the first"):
            pacer.scale_lr()
    assert pacer.lr_scale == 1.0
