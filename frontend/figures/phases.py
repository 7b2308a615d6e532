"""The phases of an iteration, the same in every picture: titles, colours and patterns."""

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
"""Data loading is drawn separately from compute if it is at least this part of some worker's time."""


def colour_of(phase: str, theme: Theme) -> str:
    """The colour of a phase; push is a paler pull."""
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
    """A pattern; the slanted one means waiting in every picture."""
    return {
        "shape": shape,
        "size": 6,
        "solidity": 0.35,
        "fgcolor": colour,
        "bgcolor": "rgba(0,0,0,0)",
        "fillmode": "replace",
    }


def is_noticeable(workers: Iterable[tuple[float, float]]) -> bool:
    """Whether some worker waits noticeably for its batches; takes each worker's data loading and its whole time."""
    return any(data_s >= NOTICEABLE * whole_s > 0 for data_s, whole_s in workers)
