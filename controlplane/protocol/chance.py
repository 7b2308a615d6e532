"""Random numbers without generator state: a number is a function of a seed and of its purpose.

A draw does not depend on earlier draws, or on where it is made, so a restored engine continues identically. The mixing
function is the finalizer of SplitMix64 (Steele, Lea and Flood, 2014). Not for secrets.
"""

from collections.abc import Sequence
from typing import Final

_MASK: Final = (1 << 64) - 1
STEP: Final = 0x9E3779B97F4A7C15
FIRST: Final = 0xBF58476D1CE4E5B9
SECOND: Final = 0x94D049BB133111EB


def key(*numbers: int) -> int:
    """A 64-bit hash of ``numbers``, in their order."""
    mixed = 0
    for number in numbers:
        # The finalizer, as in ``draw``: inlined, since a call would cost more than the computation.
        mixed = ((mixed ^ (number & _MASK)) + STEP) & _MASK
        mixed = ((mixed ^ (mixed >> 30)) * FIRST) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * SECOND) & _MASK
        mixed ^= mixed >> 31
    return mixed


def draw(key: int, size: int, count: int) -> list[int]:
    """``count`` different numbers below ``size``, sorted; every such set is equally likely (Floyd's algorithm).

    Costs ``count`` draws, however large ``size`` is.
    """
    chosen: set[int] = set()
    for top in range(size - min(count, size), size):
        key = (key + STEP) & _MASK
        key = ((key ^ (key >> 30)) * FIRST) & _MASK
        key = ((key ^ (key >> 27)) * SECOND) & _MASK
        key ^= key >> 31
        # Multiply and shift instead of modulo: its bias is below size / 2**64.
        number = (key * (top + 1)) >> 64
        chosen.add(top if number in chosen else number)
    return sorted(chosen)


def others(ranks: Sequence[int], but: int | None, count: int, chance: int) -> list[int]:
    """``count`` of ``ranks`` without the one at index ``but``; each is equally likely."""
    size = len(ranks) - (but is not None)
    skip = size if but is None else but
    return [ranks[place + (place >= skip)] for place in draw(chance, size, count)]
