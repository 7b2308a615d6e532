"""The samples of many workers in many iterations, drawn at once with NumPy: equal to ``protocol.drawing.any_others``.

A job of a thousand workers draws four samples per report. Drawn one by one, they take half of the time of a decision;
in a block, a sample takes a tenth of that.
"""

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from controlplane.protocol.chance import FIRST, SECOND, STEP, draw, key
from controlplane.protocol.drawing import DYNAMIC

RANKS: Final = 64
ITERATIONS: Final = 4
TRIES: Final = 8
"""A block has the samples of so many ranks before so many iterations, and so many attempts of each. Later attempts are
too rare to be drawn in advance."""

FEW: Final = 32
"""Below so many others a block costs more than the samples of it that are used."""

MOST: Final = 8
"""Largest sample in a block: the cost of a set is quadratic in its size."""

_KEPT: Final = 1024
"""Blocks in memory, 16 to 64 kB each; 10,000 workers use about 600."""

Numbers = NDArray[np.uint64]
Sets = NDArray[np.unsignedinteger]


def places(size: int, count: int, seed: int, rank: int, iteration: int, attempt: int) -> list[int]:
    """``count`` different numbers below ``size``, sorted: which of the others ``rank`` samples before ``iteration``."""
    if size < FEW or count > MOST or attempt >= TRIES:
        return draw(key(seed, rank, iteration, attempt, 0, DYNAMIC), size, count)
    drawn = block(size, count, seed, rank // RANKS, iteration // ITERATIONS)
    found: list[int] = drawn[rank % RANKS, iteration % ITERATIONS, attempt].tolist()
    return found


@lru_cache(maxsize=_KEPT)
def block(size: int, count: int, seed: int, ranks: int, iterations: int) -> Sets:
    """Samples by rank, iteration and attempt."""
    rank, iteration, attempt = np.ogrid[:RANKS, :ITERATIONS, :TRIES]
    keys = np.full((RANKS, ITERATIONS, TRIES), key(seed), dtype=np.uint64)
    for numbers in (rank + ranks * RANKS, iteration + iterations * ITERATIONS, attempt, 0, DYNAMIC):
        keys = _mixed(keys ^ np.asarray(numbers, dtype=np.uint64))
    return _sets(keys, size, count)


def _mixed(keys: Numbers) -> Numbers:
    """``chance.key`` of one more number, which is mixed into ``keys`` already."""
    keys = keys + np.uint64(STEP)
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(FIRST)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(SECOND)
    return keys ^ (keys >> np.uint64(31))


def _sets(keys: Numbers, size: int, count: int) -> Sets:
    """``chance.draw`` for every key; the last axis has the numbers of a set."""
    chosen = np.empty((*keys.shape, count), dtype=np.min_scalar_type(size))
    for at, top in enumerate(range(size - count, size)):
        keys = _mixed(keys)
        # The upper 64 of the 96 bits of the product, in two halves, since NumPy has no such multiplication.
        low = (keys & np.uint64(0xFFFFFFFF)) * np.uint64(top + 1) >> np.uint64(32)
        number = ((keys >> np.uint64(32)) * np.uint64(top + 1) + low) >> np.uint64(32)
        is_taken = (chosen[..., :at] == number[..., None]).any(axis=-1)
        chosen[..., at] = np.where(is_taken, top, number)
    chosen.sort(axis=-1)
    return chosen
