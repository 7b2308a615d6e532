"""The recurrent predictors' networks, each for all workers at once: one batched tensor operation per layer.

The same lines run on numpy, where the engine predicts, and on torch, where a task of its own fits them: so whoever
decides need not load torch. Arrays are (models, samples, values); every model has its own weights.

Speeds are taken relative to the worker's usual one, CPU and memory as fractions, all centred and scaled alike for
every worker and job: so a model of another worker or job is a place to start from (LB-BSP section 4).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

SPREAD = 0.25
"""What counts as one unit of departure, of relative speed and of CPU and memory use."""

MIDDLE = 0.5
"""The CPU and memory use that counts as zero."""

Tensors = Mapping[str, Any]
"""Weights by name: numpy arrays or torch tensors, (models, rows, columns) each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """One architecture: what it looks at, its weights' shapes, and its forward pass."""

    name: str
    rows: Callable[[int], int]
    """How many past iterations it needs for a look-back of so many."""
    inputs: Callable[[Any, Any, int], Any]
    """(array module, window (..., rows, 3) of speed, CPU and memory, newest first; look-back) to (..., values)."""
    shapes: Callable[[int, int], dict[str, tuple[int, int]]]
    """(look-back, hidden units) to the weights' shapes."""
    forward: Callable[[Any, Tensors, Any], Any]
    """(array module, weights, inputs (models, samples, values)) to (models, samples)."""


def _narx_inputs(xp: Any, window: Any, look_back: int) -> Any:
    # Eq. 4: speeds k-1 .. k-d, CPU and memory k .. k-d. What was reported after iteration k-1 is that of k.
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
        drive = inputs[..., step : step + 1] @ weights["in"] + weights["in_bias"]
        hidden = xp.tanh(drive if hidden is None else drive + hidden @ weights["again"])
    return (hidden @ weights["out"] + weights["out_bias"])[..., 0]


def _lstm_shapes(look_back: int, hidden: int) -> dict[str, tuple[int, int]]:
    return {
        "in": (1, 4 * hidden),
        "again": (hidden, 4 * hidden),
        "in_bias": (1, 4 * hidden),
        "out": (hidden, 1),
        "out_bias": (1, 1),
    }


def _lstm(xp: Any, weights: Tensors, inputs: Any) -> Any:
    size = weights["again"].shape[-2]
    hidden = cell = None
    for step in reversed(range(inputs.shape[-1])):
        drive = inputs[..., step : step + 1] @ weights["in"] + weights["in_bias"]
        if hidden is not None:
            drive = drive + hidden @ weights["again"]
        take, drop, give = (_sigmoid(xp, drive[..., i * size : (i + 1) * size]) for i in range(3))
        new = take * xp.tanh(drive[..., 3 * size :])
        cell = new if cell is None else new + drop * cell
        hidden = give * xp.tanh(cell)
    return (hidden @ weights["out"] + weights["out_bias"])[..., 0]


def _sigmoid(xp: Any, value: Any) -> Any:
    return 0.5 + 0.5 * xp.tanh(0.5 * value)


NARX = Network(
    name="narx", rows=lambda look_back: look_back + 1, inputs=_narx_inputs, shapes=_narx_shapes, forward=_narx
)
RNN = Network(name="rnn", rows=lambda look_back: look_back, inputs=_speeds, shapes=_rnn_shapes, forward=_rnn)
LSTM = Network(name="lstm", rows=lambda look_back: look_back, inputs=_speeds, shapes=_lstm_shapes, forward=_lstm)

NETWORKS = {network.name: network for network in (NARX, RNN, LSTM)}
