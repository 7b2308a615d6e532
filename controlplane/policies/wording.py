"""Formats numbers and names in sentences for the operator: always with units, at most four digits."""

from collections.abc import Iterable, Mapping

SHOWN = 8
"""How many workers a sentence lists before it says "and n more"."""


def listing(items: Iterable[str]) -> str:
    """``a, b and 3 more``: all of a short list, the head of a long one."""
    names = list(items)
    shown, hidden = names[:SHOWN], len(names) - SHOWN
    return ", ".join(shown) + (f" and {hidden} more" if hidden > 0 else "")


def amounts(of: Mapping[int, int], *, prefix: str = "w") -> str:
    """``w0 64, w1 32``, in order of index."""
    return listing(f"{prefix}{index} {of[index]}" for index in sorted(of))


def number(value: float) -> str:
    """Four digits at most: ``1,000``, ``93.09``, ``0.25``."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def seconds(value: float) -> str:
    """A duration in a suitable unit: ``1.25 s``, ``94 ms``, ``0.42 ms``."""
    return f"{value:.3g} s" if value >= 1 else f"{value * 1000:.3g} ms"


def iterations(count: int) -> str:
    """``1 iteration``, ``12 iterations``."""
    return f"{count:,} iteration{'' if count == 1 else 's'}"


def workers(ranks: Iterable[int], *, hidden: int = 0) -> str:
    """``w1 w4 w7``, for a sample in a sentence; ``hidden`` more are only counted."""
    names = [f"w{rank}" for rank in ranks]
    more = max(0, len(names) - SHOWN) + hidden
    return " ".join(names[:SHOWN]) + (f" and {more} more" if more else "")
