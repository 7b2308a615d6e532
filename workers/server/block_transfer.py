"""Serializes the complete state of a block for another server: a small manifest followed by arrays.

It contains the values, the optimizer's state, the number of updates, the sum of the open iteration and its
contributors. So the block continues on the other server exactly as before, and no contribution is counted twice.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Literal, cast

import msgspec
import torch

from controlplane.protocol.base import UNREADABLE, Count, Value
from workers.checkpoints.files import STATE, VALUES
from workers.server.contribution import Contribution, Sum
from workers.transport.errors import BadHeader
from workers.transport.handshake import Peer

TOTAL, KEPT = "total", "kept."
TYPES = {"float32": torch.float32, "float64": torch.float64, "int64": torch.int64}
"""Types that can be transferred: values, sums and contributions are float32, optimizers count steps in others."""

Type = Literal["float32", "float64", "int64"]


@dataclass(slots=True, kw_only=True)
class Open:
    """State of a block's incomplete iterations."""

    iteration: int
    """The open iteration; in asynchronous jobs one past the latest."""
    is_free: bool = False
    """Whether contributions are applied as they arrive."""
    contributed: set[Peer] = field(default_factory=set)
    expected: set[Peer] = field(default_factory=set)
    before: frozenset[Peer] = frozenset()
    seen: dict[Peer, int] = field(default_factory=dict)
    """In asynchronous jobs: the last iteration to which each peer has contributed."""
    growing: Sum = field(default_factory=Sum)
    kept: list[Contribution] = field(default_factory=list)
    """Contributions that are not in a sum yet."""
    squared: dict[int, float] = field(default_factory=dict)
    """By iteration, the squared norm of the mean gradient, while other servers may still request it."""


@dataclass(slots=True, kw_only=True)
class BlockState:
    """One complete block. Its tensors are views that change with the block."""

    start: int
    """The block's offset in the flat vector."""
    values: torch.Tensor
    steps: int
    state: Mapping[str, torch.Tensor]
    open: Open


class _Kept(Value, frozen=True, kw_only=True, array_like=True):
    incarnation: int
    generation: int
    peer: tuple[int, str]
    iteration: Count
    samples: Count


class _Array(Value, frozen=True, kw_only=True, array_like=True):
    name: str
    type: Type
    shape: tuple[Count, ...]

    @property
    def size(self) -> int:
        """Size in bytes."""
        return prod(self.shape) * TYPES[self.type].itemsize

    def view(self, memory: memoryview) -> torch.Tensor:
        """The tensor in ``memory``."""
        return torch.frombuffer(memory, dtype=TYPES[self.type]).view(self.shape)


class Manifest(Value, frozen=True, kw_only=True):
    """The list of the arrays that follow, and all other state."""

    start: Count
    steps: Count
    iteration: Count
    is_free: bool
    contributed: list[tuple[int, str]]
    expected: list[tuple[int, str]]
    before: list[tuple[int, str]]
    seen: list[tuple[int, str, int]]
    samples: Count
    count: Count
    kept: list[_Kept]
    squared: dict[int, float] = {}
    arrays: list[_Array]

    @property
    def sizes(self) -> list[int]:
        """Sizes of the arrays in bytes, in order."""
        return [array.size for array in self.arrays]


def pack(transfer: BlockState) -> tuple[bytes, list[memoryview]]:
    """Return the manifest, and the memory of each array.

    Raises:
        ValueError: if an optimizer's state has a type that cannot be transferred.
    """
    opened, arrays = transfer.open, _arrays(transfer)
    manifest = Manifest(
        start=transfer.start,
        steps=transfer.steps,
        iteration=opened.iteration,
        is_free=opened.is_free,
        contributed=_pairs(opened.contributed),
        expected=_pairs(opened.expected),
        before=_pairs(opened.before),
        seen=[(peer.rank, peer.instance, iteration) for peer, iteration in sorted(opened.seen.items())],
        samples=opened.growing.samples,
        count=opened.growing.count,
        kept=[_kept(contribution) for contribution in opened.kept],
        squared=opened.squared,
        arrays=[_Array(name=name, type=_type(name, array), shape=tuple(array.shape)) for name, array in arrays.items()],
    )
    return msgspec.msgpack.encode(manifest), [_memory(array) for array in arrays.values()]


def read_manifest(payload: bytes) -> Manifest:
    """Decode the manifest in ``payload``.

    Raises:
        BadHeader: if it is invalid.
    """
    try:
        return msgspec.msgpack.decode(payload, type=Manifest)
    except UNREADABLE as error:
        raise BadHeader(f"no manifest of a block: {error}") from None


def unpack(manifest: Manifest, arrays: Iterable[memoryview]) -> BlockState:
    """Restore the packed block. ``arrays`` are writable, and owned by the block from now on.

    Raises:
        BadHeader: if an array is missing, or does not match the manifest.
    """
    try:
        return _unpacked(manifest, arrays)
    except (KeyError, ValueError, RuntimeError) as error:  # torch raises RuntimeError
        raise BadHeader(f"a block that moves does not fit its manifest: {error}") from None


def _unpacked(manifest: Manifest, arrays: Iterable[memoryview]) -> BlockState:
    memory = dict(zip((array.name for array in manifest.arrays), arrays, strict=True))
    tensors = {array.name: array.view(memory[array.name]) for array in manifest.arrays}
    if VALUES not in memory or len(manifest.kept) != sum(name.startswith(KEPT) for name in memory):
        raise BadHeader(f"a block that moves has arrays {sorted(memory)}: its values or kept contributions are missing")
    growing = Sum()
    if manifest.count:
        growing.take_over(memory[TOTAL], samples=manifest.samples, count=manifest.count)
    return BlockState(
        start=manifest.start,
        values=tensors[VALUES],
        steps=manifest.steps,
        state={name.removeprefix(STATE): tensors[name] for name in tensors if name.startswith(STATE)},
        open=Open(
            iteration=manifest.iteration,
            is_free=manifest.is_free,
            contributed={Peer(*peer) for peer in manifest.contributed},
            expected={Peer(*peer) for peer in manifest.expected},
            before=frozenset(Peer(*peer) for peer in manifest.before),
            seen={Peer(rank, instance): iteration for rank, instance, iteration in manifest.seen},
            growing=growing,
            kept=[_contribution(kept, memory[f"{KEPT}{at}"]) for at, kept in enumerate(manifest.kept)],
            squared=manifest.squared,
        ),
    )


def _arrays(transfer: BlockState) -> dict[str, torch.Tensor]:
    arrays = {VALUES: transfer.values} | {f"{STATE}{name}": array for name, array in transfer.state.items()}
    if transfer.open.growing.count:
        arrays[TOTAL] = transfer.open.growing.total
    for at, contribution in enumerate(transfer.open.kept):
        arrays[f"{KEPT}{at}"] = torch.frombuffer(contribution.total, dtype=torch.float32)
    return arrays


def _type(name: str, array: torch.Tensor) -> Type:
    for known, dtype in TYPES.items():
        if array.dtype is dtype:
            return cast(Type, known)
    raise ValueError(f"{name} of a block has type {array.dtype}; found that, expected one of {', '.join(TYPES)}")


def _memory(array: torch.Tensor) -> memoryview:
    return array.detach().contiguous().view(-1).numpy().data.cast("B")


def _pairs(peers: Iterable[Peer]) -> list[tuple[int, str]]:
    return sorted((peer.rank, peer.instance) for peer in peers)


def _kept(contribution: Contribution) -> _Kept:
    incarnation, generation = contribution.term
    return _Kept(
        incarnation=incarnation,
        generation=generation,
        peer=(contribution.peer.rank, contribution.peer.instance),
        iteration=contribution.iteration,
        samples=contribution.samples,
    )


def _contribution(kept: _Kept, total: memoryview) -> Contribution:
    return Contribution(
        term=(kept.incarnation, kept.generation),
        peer=Peer(*kept.peer),
        iteration=kept.iteration,
        samples=kept.samples,
        total=total,
    )
