"""One row of numbers per worker: an array for predictors, bytes in their state."""

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from controlplane.policies.prediction.interface import Measured
from controlplane.protocol.base import Value

Array = NDArray[np.float64]
Indices = NDArray[np.intp]


class Sheet(Value, frozen=True, kw_only=True):
    """Rows in order of ``ranks``, which are sorted; ``cells`` are 64-bit floats, row by row."""

    ranks: list[int] = []
    cells: bytes = b""

    def rows(self, width: int) -> Array:
        """A writable copy, (ranks, width)."""
        return np.frombuffer(self.cells, dtype=np.float64).reshape(len(self.ranks), width).copy()

    def with_ranks(self, ranks: Collection[int], blank: Array) -> tuple[list[int], Array]:
        """Ranks and rows of all workers; ranks without a row get ``blank``."""
        rows = self.rows(len(blank))
        if new := sorted(set(ranks) - set(self.ranks)):
            all_ranks = self.ranks + new
            rows = np.concatenate([rows, np.tile(blank, (len(new), 1))])
            order = sorted(range(len(all_ranks)), key=all_ranks.__getitem__)
            return [all_ranks[i] for i in order], rows[order]
        return self.ranks, rows

    def kept(self, ranks: Collection[int], width: int) -> "Sheet":
        """Only the rows of ``ranks``."""
        at = [i for i, rank in enumerate(self.ranks) if rank in ranks]
        return fill([self.ranks[i] for i in at], self.rows(width)[at])


def fill(ranks: list[int], rows: Array) -> Sheet:
    """A sheet with these rows."""
    return Sheet(ranks=ranks, cells=rows.tobytes())


def columns(measured: Mapping[int, Measured], ranks: list[int]) -> tuple[Indices, Array]:
    """The indices of the measured ranks in ``ranks``, and (measured, 3): speed, CPU, memory."""
    at = np.fromiter((i for i, rank in enumerate(ranks) if rank in measured), dtype=np.intp)
    seen = [measured[ranks[i]] for i in at]
    values = np.array([(one.speed, one.cpu, one.memory) for one in seen], dtype=np.float64)
    return at, values.reshape(len(seen), 3)


def predictions(ranks: list[int], speeds: Array) -> dict[int, float]:
    """Speeds by rank, rounded to nine digits: the last bits may differ between machines, and shares must not depend on
    them.
    """
    return {rank: float(f"{speed:.9g}") for rank, speed in zip(ranks, speeds.tolist(), strict=True)}
