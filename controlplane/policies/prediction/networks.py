"""The recurrent predictors' networks, each for all workers at once: one batched tensor operation per layer.

The same code runs on numpy, where the engine predicts, and on torch, where a separate task fits the networks, so the
decision process does not need to import torch. Arrays are (models, samples, values); every model has its own weights.

Speeds are relative to the worker's usual speed, CPU and memory are fractions; all are centered and scaled in the same
way for every worker and job, so that training can start from a model of another worker or job (LB-BSP section 4).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controlplane.policies.prediction.sheet import Array

SPREAD = 0.25
"""Scale of relative speed, and of CPU and memory use: a deviation of this size becomes 1."""

MIDDLE = 0.5
"""The CPU and memory use that counts as zero."""

Tensors = Mapping[str, Any]
"""Weights by name: numpy arrays or torch tensors, (models, rows, columns) each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """One architecture: its inputs, the shapes of its weights, and its forward pass."""

    name: str
    rows: Callable[[int], int]
    """Maps the look-back to the number of past iterations that it needs."""
    inputs: Callable[[Any, Any, int], Any]
    """Maps (array module, window (..., rows, 3) of speed, CPU and memory, newest first; look-back) to (..., values)."""
    shapes: Callable[[int, int], dict[str, tuple[int, int]]]
    """Maps (look-back, hidden units) to the shapes of the weights."""
    forward: Callable[[Any, Tensors, Any], Any]
    """Maps (array module, weights, inputs (models, samples, values)) to (models, samples)."""
    own_steps: int
    """Steps of each worker's fit; for 100 workers they should take less than a second."""


def relative(window: NDArray[np.floating], usual: Array) -> Array:
    """Normalized speed, CPU and memory (..., 3); ``usual`` has the shape of the workers' axis."""
    centred = np.empty(window.shape)
    centred[..., 0] = (window[..., 0] / usual.reshape(-1, *[1] * (window.ndim - 2)) - 1.0) / SPREAD
    centred[..., 1:] = (window[..., 1:] - MIDDLE) / SPREAD
    return centred


def _narx_inputs(xp: Any, window: Any, look_back: int) -> Any:
    # Eq. 4: speeds k-1 .. k-d, CPU and memory k .. k-d. Readings reported after iteration k-1 are those of k.
    return xp.concatenate([window[..., :look_back, 0], window[..., 1], window[..., 2]], -1)


def _narx_shapes(look_back: int, hidden: int) -> dict[str, tuple[int, int]]:
    values = look_back + 2 * (look_back + 1)
    return {"in": (values, hidden), "in_bias": (1, hidden), "out": (hidden, 1), "out_bias": (1, 1)}


def _narx(xp: Any, weights: Tensors, inputs: Any) -> Any:
    hidden = xp.tanh(inputs @ weights["in"] + weights["in_bias"])
    return (hidden @ weights["out"] + weights["out_bias"])[..., 0]


def _speeds(xp: Any, window: Any, look_back: int) -> Any:
    return window[..., :look_back, 0]


def _rnn_shapes(look_back: int, hidden: int) -> dict[str, tuple[int, int]]:
    return {
        "in": (1, hidden),
        "again": (hidden, hidden),
        "in_bias": (1, hidden),
        "out": (hidden, 1),
        "out_bias": (1, 1),
    }


def _rnn(xp: Any, weights: Tensors, inputs: Any) -> Any:
    hidden = None
    for step in reversed(range(inputs.shape[-1])):
        drive = inputs[..., step : step + 1] * weights["in"] + weights["in_bias"]
        hidden = xp.tanh(drive if hidden is None else drive + hidden @ weights["again"])
    return (hidden @ weights["out"] + weights["out_bias"])[..., 0]


LSTM_PARTS = ("take", "drop", "give", "new")
"""The three gates and the cell input; in separate tensors, since torch is slow at slicing one tensor."""


def _lstm_shapes(look_back: int, hidden: int) -> dict[str, tuple[int, int]]:
    shapes = {"out": (hidden, 1), "out_bias": (1, 1)}
    for part in LSTM_PARTS:
        shapes |= {f"{part}_in": (1, hidden), f"{part}_again": (hidden, hidden), f"{part}_bias": (1, hidden)}
    return shapes


def _lstm(xp: Any, weights: Tensors, inputs: Any) -> Any:
    hidden = cell = None
    for step in reversed(range(inputs.shape[-1])):
        now = inputs[..., step : step + 1]
        new = _gate(xp, weights, "take", now, hidden) * xp.tanh(_drive(weights, "new", now, hidden))
        cell = new if cell is None else new + _gate(xp, weights, "drop", now, hidden) * cell
        hidden = _gate(xp, weights, "give", now, hidden) * xp.tanh(cell)
    return (hidden @ weights["out"] + weights["out_bias"])[..., 0]


def _drive(weights: Tensors, part: str, now: Any, hidden: Any) -> Any:
    drive = now * weights[f"{part}_in"] + weights[f"{part}_bias"]
    return drive if hidden is None else drive + hidden @ weights[f"{part}_again"]


def _gate(xp: Any, weights: Tensors, part: str, now: Any, hidden: Any) -> Any:
    return _sigmoid(xp, _drive(weights, part, now, hidden))


def _sigmoid(xp: Any, value: Any) -> Any:
    # numpy has no sigmoid; torch's own is one operation to differentiate instead of four.
    return xp.sigmoid(value) if hasattr(xp, "sigmoid") else 0.5 + 0.5 * xp.tanh(0.5 * value)


NARX = Network(
    name="narx",
    rows=lambda look_back: look_back + 1,
    inputs=_narx_inputs,
    shapes=_narx_shapes,
    forward=_narx,
    own_steps=60,
)
RNN = Network(
    name="rnn",
    rows=lambda look_back: look_back,
    inputs=_speeds,
    shapes=_rnn_shapes,
    forward=_rnn,
    own_steps=40,
)
LSTM = Network(
    name="lstm",
    rows=lambda look_back: look_back,
    inputs=_speeds,
    shapes=_lstm_shapes,
    forward=_lstm,
    own_steps=10,
)

NETWORKS = {network.name: network for network in (NARX, RNN, LSTM)}
