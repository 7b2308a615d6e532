"""Input and output of a fit, encoded as bytes for a command and an event."""

from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from controlplane.policies.catalogue.prediction import RecurrentParameters
from controlplane.policies.prediction.networks import Network
from controlplane.protocol.base import Value

Floats = NDArray[np.float64]


class Weights(Value, frozen=True, kw_only=True):
    """A common model first, then one for each of ``ranks``. ``tensors`` are 32-bit floats, (models, rows, columns)."""

    network: str
    look_back: int
    hidden: int
    ranks: list[int]
    usual: list[float]
    """Each rank's usual speed, to which its model's speeds are relative."""
    tensors: dict[str, bytes]
    better: list[bool] = []
    """For each model, whether it beat the worker's average on held-out samples; empty if they were not compared."""

    def arrays(self, shapes: Mapping[str, tuple[int, int]]) -> dict[str, Floats]:
        """The tensors in 64 bits, so that results agree on every machine to nine digits."""
        return {
            name: np.frombuffer(self.tensors[name], dtype=np.float32).reshape(-1, *shape).astype(np.float64)
            for name, shape in shapes.items()
        }


class LessonData(Value, frozen=True, kw_only=True):
    """History of ``ranks``, oldest first, 32-bit floats (iterations, ranks, 3); NaN where not measured."""

    ranks: list[int]
    history: bytes
    initial: bytes = b""
    """Initial weights."""

    def array(self) -> NDArray[np.float32]:
        """(iterations, ranks, 3): speed, CPU, memory."""
        return np.frombuffer(self.history, dtype=np.float32).reshape(-1, len(self.ranks), 3)


weights_decoder: msgspec.msgpack.Decoder[Weights] = msgspec.msgpack.Decoder(Weights)
lesson_decoder: msgspec.msgpack.Decoder[LessonData] = msgspec.msgpack.Decoder(LessonData)
"""Created once, at import: concurrent first decodings of a type in several threads crash the process."""


def encode(value: Weights | LessonData) -> bytes:
    """Encode for an event or a command."""
    return msgspec.msgpack.encode(value)


def read_weights(data: bytes, network: Network, parameters: RecurrentParameters) -> Weights:
    """The weights in ``data``.

    Raises:
        ValueError: if they belong to another kind of network.
    """
    try:
        weights = weights_decoder.decode(data)
    except msgspec.DecodeError as error:
        raise ValueError(f"{network.name}: weights cannot be read: {error}") from None
    found = (weights.network, weights.look_back, weights.hidden)
    expected_kind = (network.name, parameters.look_back, parameters.hidden)
    if found != expected_kind:
        raise ValueError(f"found weights of {found}, expected those of {expected_kind} (network, look-back, hidden)")
    _check_sizes(weights, network.shapes(parameters.look_back, parameters.hidden))
    return weights


def _check_sizes(weights: Weights, shapes: Mapping[str, tuple[int, int]]) -> None:
    network, models = weights.network, len(weights.ranks) + 1
    for name, (rows, columns) in shapes.items():
        size, expected = len(weights.tensors.get(name, b"")), 4 * models * rows * columns
        if size != expected:
            raise ValueError(f"{network}: found {size} bytes of {name}, expected {expected} for {models} models")
        if not np.isfinite(np.frombuffer(weights.tensors[name], dtype=np.float32)).all():
            raise ValueError(f"{network}: {name} has weights that are not finite")
    if len(weights.better) not in (0, models):
        raise ValueError(f"{network}: found {len(weights.better)} comparisons with the average, expected {models}")
    if len(weights.usual) != len(weights.ranks) or not all(0 < usual < float("inf") for usual in weights.usual):
        raise ValueError(f"{network}: expected a usual speed above 0 for each of {len(weights.ranks)} workers")
