"""Defines titles, colours and patterns of an iteration's phases, the same in every figure."""

from collections.abc import Iterable
from typing import Any, Final

from frontend.figures.theme import Theme, faded

TITLES: Final = {
    "coordination": "Coordination",
    "waiting": "Waiting",
    "pull": "Pull",
    "data": "Data loading",
    "compute": "Compute",
    "push": "Push",
    "communication": "Communication",
}

PATTERNS: Final = {"waiting": "/", "data": "x"}
"""Phases that are hatched; the others are solid."""

NOTICEABLE: Final = 0.01
"""Data loading is drawn separately from compute if it takes at least this fraction of any worker's time."""


def colour_of(phase: str, theme: Theme) -> str:
    """The colour of a phase; push has a paler shade of the colour of pull."""
    if phase in ("push", "pull"):
        return faded(theme.communication) if phase == "push" else theme.communication
    return str(getattr(theme, phase))


def bar_style(phase: str, theme: Theme) -> dict[str, Any]:
    """The marker of a bar of this phase."""
    colour = colour_of(phase, theme)
    return {
        "color": colour,
        "line": {"width": 0},
        **({"pattern": hatch(colour, PATTERNS[phase])} if phase in PATTERNS else {}),
    }


def hatch(colour: str, shape: str = "/") -> dict[str, Any]:
    """A hatch pattern; diagonal strokes mean waiting in every figure."""
    return {
        "shape": shape,
        "size": 6,
        "solidity": 0.35,
        "fgcolor": colour,
        "bgcolor": "rgba(0,0,0,0)",
        "fillmode": "replace",
    }


def is_noticeable(workers: Iterable[tuple[float, float]]) -> bool:
    """Whether any worker waits noticeably for its batches; takes (data loading, whole time) of each worker."""
    return any(data_s >= NOTICEABLE * whole_s > 0 for data_s, whole_s in workers)
