"""Fits the recurrent predictors, all workers in one batched tensor operation. The only module here that imports torch.

First one common model is fitted for all workers (or is given), then each worker's own model starts from it: "model
reusing" of LB-BSP section 4. Both use early stopping on the last fifth of each worker's samples, which are held out;
each worker's model keeps its best step. On the same samples models are compared with the worker's average: only models
that beat it are used.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from controlplane.policies.catalogue.prediction import RecurrentParameters
from controlplane.policies.prediction.networks import SPREAD, Network, relative
from controlplane.policies.prediction.sheet import Array
from controlplane.policies.prediction.weights import LessonData, Weights, encode, lesson_decoder, read_weights

HELD_BACK = 0.2
COMMON_SAMPLES = 1024
"""Number of samples of all workers that the common model is fitted to."""

COMMON_STEPS = 300
COMMON_RATE, OWN_RATE = 0.02, 0.01
TURNS = 4
"""Each step of the workers' models uses every fourth sample, in turn: as good as all of them, and cheaper."""

TOGETHER = 200
"""How many workers' models are fitted at a time."""

PATIENCE = 20
"""Steps without improvement after which a fit ends."""

HUBER = 1.0
"""Errors above this many units count linearly, so that spikes do not distort the fit."""


def fit(network: Network, parameters: RecurrentParameters, data: bytes, seed: int) -> tuple[bytes, float]:
    """Weights, and the root mean square error on held-out samples, in samples per second.

    Raises:
        ValueError: if no worker in the lesson has enough consecutive iterations.
    """
    lesson = lesson_decoder.decode(data)
    samples = _samples(network, parameters, lesson)
    with _one_thread():
        return _fit(network, parameters, lesson, samples, seed)


@contextmanager
def _one_thread() -> Iterator[None]:
    # Tensors this small gain nothing from more threads, and on busy cores threads wait for each other 50 times as long.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _fit(
    network: Network, parameters: RecurrentParameters, lesson: LessonData, samples: "_Samples", seed: int
) -> tuple[bytes, float]:
    chance = torch.Generator().manual_seed(seed)
    common = _begin(network, parameters, lesson.initial, chance)
    common = _fit_common(network, common, samples, chance)
    own = _begin_own(network, parameters, lesson, samples.ranks, common)
    own = _fit_own(network, own, samples)
    better, error = _compare(network, common, own, samples)
    weights = Weights(
        network=network.name,
        look_back=parameters.look_back,
        hidden=parameters.hidden,
        ranks=samples.ranks,
        usual=samples.usual.tolist(),
        better=better,
        tensors={name: torch.cat([common[name], own[name]]).numpy().tobytes() for name in own},
    )
    return encode(weights), error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Samples:
    """Samples made of a lesson, with normalized speeds. Arrays are (ranks, samples) unless stated otherwise."""

    ranks: list[int]
    """The ranks that have samples."""
    usual: Array
    """(ranks,) mean speed."""
    inputs: Tensor
    """(ranks, samples, values)."""
    targets: Tensor
    averages: Tensor
    """The moving average's prediction of each target."""
    learn: Tensor
    """1 if a sample is complete and used for training, else 0."""
    check: Tensor
    """1 if a sample is complete and held out, else 0."""
    held: int
    """How many of the last samples are held out."""


def _samples(network: Network, parameters: RecurrentParameters, lesson: LessonData) -> _Samples:
    history, look_back = lesson.array(), parameters.look_back
    needed = network.rows(look_back)
    if len(history) <= needed:
        raise ValueError(f"{network.name}: found {len(history)} iterations, expected more than {needed}")
    windows = np.lib.stride_tricks.sliding_window_view(history, needed, axis=0)[:-1, ..., ::-1]
    windows, targets = windows.transpose(1, 0, 3, 2), history[needed:, :, 0].T
    whole = np.isfinite(windows).all(axis=(2, 3)) & np.isfinite(targets)
    some = np.asarray(whole.any(axis=1))
    if not some.any():
        raise ValueError(f"{network.name}: no worker has {needed + 1} consecutive iterations")
    ranks = [rank for rank, good in zip(lesson.ranks, some, strict=True) if good]
    windows, targets, whole = windows[some], targets[some].astype(np.float64), whole[some]
    usual = np.nanmean(np.where(whole, targets, np.nan), axis=1)
    averages = _averages(history[:, some, 0].T.astype(np.float64), parameters.alpha)[:, needed:]
    held = max(1, int(targets.shape[1] * HELD_BACK))
    late = np.arange(targets.shape[1]) >= targets.shape[1] - held
    return _Samples(
        ranks=ranks,
        usual=usual,
        inputs=_tensor(np.nan_to_num(network.inputs(np, relative(windows, usual), look_back))),
        targets=_tensor(np.nan_to_num((targets / usual[:, None] - 1.0) / SPREAD)),
        averages=_tensor(np.nan_to_num((averages / usual[:, None] - 1.0) / SPREAD)),
        learn=_tensor(whole & ~late),
        check=_tensor(whole & late),
        held=held,
    )


def _averages(speeds: Array, alpha: float) -> Array:
    """The moving average of each row before each of its values; NaN before the first."""
    expected, average = np.empty_like(speeds), np.full(len(speeds), np.nan)
    for k in range(speeds.shape[1]):
        expected[:, k] = average
        seen = np.where(np.isnan(average), speeds[:, k], alpha * speeds[:, k] + (1 - alpha) * average)
        average = np.where(np.isnan(speeds[:, k]), average, seen)
    return expected


def _tensor(array: Any) -> Tensor:
    return torch.from_numpy(array.astype(np.float32))


def _begin(
    network: Network, parameters: RecurrentParameters, initial: bytes, chance: torch.Generator
) -> dict[str, Tensor]:
    """Initial weights of the common model: the given ones, or small random ones."""
    shapes = network.shapes(parameters.look_back, parameters.hidden)
    if initial:
        return {name: tensor[:1] for name, tensor in _given(network, parameters, initial)[1].items()}
    return {
        name: torch.zeros(1, rows, columns)
        if name.endswith("bias")
        else torch.randn(1, rows, columns, generator=chance) / rows**0.5
        for name, (rows, columns) in shapes.items()
    }


def _begin_own(
    network: Network, parameters: RecurrentParameters, lesson: LessonData, ranks: list[int], common: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Initial weights of each worker's model: its former ones if there are any, else the common ones."""
    if not lesson.initial:
        return {name: tensor.repeat(len(ranks), 1, 1) for name, tensor in common.items()}
    before, tensors = _given(network, parameters, lesson.initial)
    place = {rank: i + 1 for i, rank in enumerate(before.ranks)}
    at = [place.get(rank, 0) for rank in ranks]
    return {name: torch.cat([common[name], tensor[1:]])[at] for name, tensor in tensors.items()}


def _given(network: Network, parameters: RecurrentParameters, initial: bytes) -> tuple[Weights, dict[str, Tensor]]:
    weights = read_weights(initial, network, parameters)
    arrays = weights.arrays(network.shapes(parameters.look_back, parameters.hidden))
    return weights, {name: torch.from_numpy(array.astype(np.float32)) for name, array in arrays.items()}


def _fit_common(
    network: Network, begin: dict[str, Tensor], samples: _Samples, chance: torch.Generator
) -> dict[str, Tensor]:
    """Fit one model to a random subset of all workers' samples."""
    inputs, targets = samples.inputs.flatten(0, 1), samples.targets.flatten()
    pick = torch.randperm(targets.numel(), generator=chance)[:COMMON_SAMPLES]
    learn, check = (
        _Batch(inputs=inputs[those][None], targets=targets[those][None], counted=torch.ones(1, len(those)))
        for those in (pick[mask.flatten()[pick] > 0] for mask in (samples.learn, samples.check))
    )
    return _descend(network, begin, [learn], check, steps=COMMON_STEPS, rate=COMMON_RATE)


def _fit_own(network: Network, begin: dict[str, Tensor], samples: _Samples) -> dict[str, Tensor]:
    """Fit each worker's model, a few workers at a time, so that the data of a step stay in the cache."""
    whole = samples.targets.shape[1] - samples.held
    parts = [
        {name: tensor[first : first + TOGETHER] for name, tensor in begin.items()}
        for first in range(0, len(samples.ranks), TOGETHER)
    ]
    fitted = []
    for first, part in zip(range(0, len(samples.ranks), TOGETHER), parts, strict=True):
        workers = slice(first, first + TOGETHER)
        learn = [_batch(samples, samples.learn, workers, slice(turn, whole, TURNS)) for turn in range(TURNS)]
        check = _batch(samples, samples.check, workers, slice(whole, None))
        fitted.append(_descend(network, part, learn, check, steps=network.own_steps, rate=OWN_RATE))
    return {name: torch.cat([part[name] for part in fitted]) for name in begin}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """Samples of several models, (models, samples)."""

    inputs: Tensor
    """(models, samples, values)."""
    targets: Tensor
    counted: Tensor
    """1 if a sample counts, else 0."""


def _batch(samples: _Samples, counted: Tensor, workers: slice, which: slice) -> _Batch:
    tensors = (tensor[workers, which].contiguous() for tensor in (samples.inputs, samples.targets, counted))
    inputs, targets, counted = tensors
    return _Batch(inputs=inputs, targets=targets, counted=counted)


def _descend(
    network: Network,
    begin: dict[str, Tensor],
    learn: Sequence[_Batch],
    check: _Batch,
    *,
    steps: int,
    rate: float,
) -> dict[str, Tensor]:
    """Adam on all models at once, on the batches in turn; each keeps the weights of its best step."""
    weights = {name: tensor.clone().requires_grad_() for name, tensor in begin.items()}
    best = {name: tensor.clone() for name, tensor in begin.items()}
    least = torch.full((len(check.targets),), torch.inf)
    optimizer = torch.optim.Adam(weights.values(), lr=rate, fused=True)
    idle = 0
    for step in range(steps):
        with torch.no_grad():
            held = _loss(network, weights, check)
            better = held < least * 0.999
            least = torch.where(better, held, least)
            for name, tensor in weights.items():
                best[name] = torch.where(better[:, None, None], tensor, best[name])
        idle = 0 if bool(better.any()) else idle + 1
        if idle > PATIENCE:
            break
        optimizer.zero_grad()
        torch.autograd.backward(_loss(network, weights, learn[step % len(learn)]).sum())
        optimizer.step()
    return best


def _loss(network: Network, weights: dict[str, Tensor], batch: _Batch) -> Tensor:
    """Loss of each model, over the samples that count."""
    return _mean(_losses(network.forward(torch, weights, batch.inputs), batch.targets), batch.counted)


def _losses(forecasts: Tensor, targets: Tensor) -> Tensor:
    return torch.nn.functional.huber_loss(forecasts, targets, reduction="none", delta=HUBER)


def _mean(losses: Tensor, counted: Tensor) -> Tensor:
    """Mean of each row, over the samples that count."""
    return (losses * counted).sum(1) / counted.sum(1).clamp(min=1)


@torch.no_grad()
def _compare(
    network: Network, common: dict[str, Tensor], own: dict[str, Tensor], samples: _Samples
) -> tuple[list[bool], float]:
    """Which models beat the average on held-out samples, and the error of the resulting predictions there.

    The common model, which comes first, is compared over all workers, each worker's model over that worker only.
    """
    targets, check = samples.targets, samples.check
    of_common, of_own = (network.forward(torch, model, samples.inputs) for model in (common, own))
    losses = [_losses(forecasts, targets) for forecasts in (of_common, of_own, samples.averages)]
    first, _, average = (_mean(each.flatten()[None], check.flatten()[None]) for each in losses)
    better = _mean(losses[1], check) < _mean(losses[2], check)
    predicted = torch.where(better[:, None], of_own, samples.averages)
    missed = (predicted - targets) * SPREAD * torch.from_numpy(samples.usual)[:, None].float()
    error = float(((missed**2 * check).sum() / check.sum().clamp(min=1)).sqrt())
    return [*(first < average).tolist(), *better.tolist()], error
