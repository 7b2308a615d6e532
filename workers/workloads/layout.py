"""The layout of a model's tensors in the flat vector of servers, workers and checkpoints.

Parameters come first, in the order of the module, then its buffers, which no optimizer changes.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Literal, Self

import numpy as np
import numpy.typing as npt

Shape = tuple[int, ...]
Kind = Literal["parameter", "buffer"]
"""Trained parameters, and buffers of the forward pass (running statistics, constants)."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor: elements ``start`` to ``stop`` of the flat vector."""

    name: str
    shape: Shape
    start: int
    kind: Kind = "parameter"
    dtype: str = "float32"
    """Its type in the module; in the vector all elements are float32."""

    @property
    def size(self) -> int:
        """Size in elements."""
        return prod(self.shape)

    @property
    def stop(self) -> int:
        """Where the next one starts."""
        return self.start + self.size


@dataclass(frozen=True, slots=True)
class Piece:
    """A block's part of one tensor: elements ``start`` to ``stop``, relative to the block."""

    entry: Entry
    start: int
    stop: int
    within: int
    """Offset of the first one, relative to the tensor."""

    @property
    def is_whole(self) -> bool:
        """Whether the block has the complete tensor."""
        return self.stop - self.start == self.entry.size


@dataclass(frozen=True)
class Layout:
    """All tensors in order, without gaps; parameters before buffers."""

    entries: tuple[Entry, ...]

    def __post_init__(self) -> None:
        """Check the order.

        Raises:
            ValueError: if there are gaps, or a parameter comes after a buffer.
        """
        end, kinds = 0, [entry.kind for entry in self.entries]
        for entry in self.entries:
            if entry.start != end:
                raise ValueError(f"{entry.name} starts at {entry.start}, expected {end}: tensors follow one another")
            end = entry.stop
        if kinds != sorted(kinds, reverse=True):
            raise ValueError(f"kinds in the order {', '.join(kinds)}, expected all parameters before all buffers")

    @classmethod
    def of(cls, shapes: Mapping[str, Shape], buffers: Mapping[str, tuple[Shape, str]] | None = None) -> Self:
        """Parameters of these shapes by name, and buffers of these shapes and types after them."""
        entries: list[Entry] = []
        end = 0
        for name, shape in shapes.items():
            entries.append(Entry(name, tuple(shape), end))
            end = entries[-1].stop
        for name, (shape, dtype) in (buffers or {}).items():
            entries.append(Entry(name, tuple(shape), end, "buffer", dtype))
            end = entries[-1].stop
        return cls(tuple(entries))

    @cached_property
    def size(self) -> int:
        """Elements of the whole vector."""
        return self.entries[-1].stop if self.entries else 0

    @cached_property
    def edge(self) -> int:
        """Where the buffers start; without any, the end."""
        return next((entry.start for entry in self.entries if entry.kind == "buffer"), self.size)

    @property
    def sizes(self) -> list[int]:
        """Number of elements of each non-empty tensor, in order."""
        return [entry.size for entry in self.entries if entry.size]

    @property
    def shapes(self) -> dict[str, Shape]:
        """The parameters by name, in order."""
        return {entry.name: entry.shape for entry in self.entries if entry.kind == "parameter"}

    @property
    def buffers(self) -> tuple[Entry, ...]:
        """The buffers at the end, in order."""
        return tuple(entry for entry in self.entries if entry.kind == "buffer")

    def span(self, start: int, stop: int) -> list[Piece]:
        """The parts of tensors in the block ``start`` to ``stop``, in order."""
        return list(self._pieces(self.entries, start, stop))

    def views(self, vector: npt.NDArray[np.float32]) -> dict[str, npt.NDArray[np.float32]]:
        """Each tensor by name as a view of ``vector``."""
        return {entry.name: vector[entry.start : entry.stop].reshape(entry.shape) for entry in self.entries}

    @staticmethod
    def _pieces(entries: Iterable[Entry], start: int, stop: int) -> Iterator[Piece]:
        for entry in entries:
            begin, end = max(start, entry.start), min(stop, entry.stop)
            if begin < end:
                yield Piece(entry, begin - start, end - start, begin - entry.start)
