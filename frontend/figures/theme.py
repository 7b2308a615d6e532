"""Defines the colours. The style sheet repeats them as custom properties; a test compares the two.

The categories are the Okabe-Ito palette. On a light background its orange, sky blue and yellow miss the 3:1 contrast of
WCAG 1.4.11, hence the darker variants; every colour here reaches 3:1 on its theme's surface. Phases never differ by
colour alone: waiting and data loading are hatched.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ROOM_PX = 68
"""Margin with an axis, for its title and labels such as ``0.0005``. Plotly enlarges it where labels need
more space, but then draws the figure twice."""

EDGE_PX = 32
"""Margin without an axis, for half of the last label below."""

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """Colours of one theme, as ``#rrggbb``."""

    name: str
    surface: str
    text: str
    muted: str
    grid: str
    data: str
    compute: str
    communication: str
    waiting: str
    coordination: str
    categories: tuple[str, ...]

    def category(self, index: int) -> str:
        """The colour of a worker: fixed by its rank, everywhere."""
        return self.categories[index % len(self.categories)]

    def dash(self, index: int) -> str:
        """The line style that distinguishes workers whose colours repeat."""
        styles = ("solid", "dash", "dot", "dashdot")
        return styles[index // len(self.categories) % len(styles)]


LIGHT = Theme(
    name="light",
    surface="#ffffff",
    text="#1a1d24",
    muted="#5b6270",
    grid="#e8eaee",
    data="#008a64",
    compute="#0072b2",
    communication="#2e8bc0",
    waiting="#c65300",
    coordination="#6b7280",
    categories=("#0072b2", "#b87a00", "#008a64", "#b0568a", "#c65300", "#2e8bc0", "#8f8500", "#6b7280"),
)

DARK = Theme(
    name="dark",
    surface="#14171d",
    text="#e7e9ee",
    muted="#9aa2b1",
    grid="#262b34",
    data="#1fb68c",
    compute="#3d9bd6",
    communication="#8fd0f5",
    waiting="#ee7a2e",
    coordination="#9aa2b1",
    categories=("#3d9bd6", "#e69f00", "#1fb68c", "#cc79a7", "#ee7a2e", "#8fd0f5", "#f0e442", "#b6bcc8"),
)

THEMES = {theme.name: theme for theme in (LIGHT, DARK)}


def faded(colour: str, opacity: float = 0.6) -> str:
    """A lighter variant of a ``#rrggbb`` colour. A trace's opacity would not apply to its legend."""
    red, green, blue = _channels(colour)
    return f"rgba({red},{green},{blue},{opacity})"


def mixed(first: str, second: str, part: float) -> str:
    """The colour at a fraction between two ``#rrggbb`` colours, interpolated as in Plotly."""
    ends = zip(_channels(first), _channels(second), strict=True)
    return "#" + "".join(f"{round(low + (high - low) * part):02x}" for low, high in ends)


def readable_on(ground: str) -> str:
    """Black or white, whichever has more contrast on ``#rrggbb``: at least 4.5:1 on any background."""
    parts = [each / 255 for each in _channels(ground)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return "#000000" if (luminance + 0.05) ** 2 > 1.05 * 0.05 else "#ffffff"


def _channels(colour: str) -> list[int]:
    return [int(colour[place : place + 2], 16) for place in (1, 3, 5)]


def layout(
    theme: Theme,
    *,
    name: str,
    caption: str,
    sampling: str = "",
    meta: Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A layout in the theme: light grid, no title (the page has one), zoom kept by a constant ``uirevision``.

    The layout's ``meta`` carries the text around the picture: its caption and how it was down-sampled, and
    further values for the page, given as ``meta``.
    """
    return {
        "font": {"family": FONT, "size": 12, "color": theme.muted},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": ROOM_PX, "r": ROOM_PX if _has_right_axis(more) else EDGE_PX, "t": 8, "b": 44},
        "hovermode": "x unified",
        "hoverlabel": {
            "bgcolor": theme.surface,
            "bordercolor": theme.grid,
            "font": {"family": FONT, "color": theme.text},
        },
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1.02,
            "yanchor": "bottom",
            "traceorder": "normal",
            "font": {"color": theme.text},
        },
        "uirevision": name,
        "meta": {"name": name, "caption": caption, "sampling": sampling, "empty": "", **(meta or {})},
    } | more


def _has_right_axis(parts: Mapping[str, Any]) -> bool:
    return any(isinstance(part, dict) and part.get("side") == "right" for part in parts.values())


def axis(theme: Theme, title: str = "", **more: Any) -> dict[str, Any]:
    """An axis in the theme."""
    return {
        "title": {"text": title, "standoff": 8},
        "gridcolor": theme.grid,
        "linecolor": theme.grid,
        "zeroline": False,
        "automargin": True,
    } | more


def empty(name: str, sentence: str) -> dict[str, Any]:
    """A figure without traces, whose ``meta.empty`` the page shows instead of a picture."""
    return {
        "data": [],
        "layout": {"meta": {"name": name, "caption": "", "sampling": "", "empty": sentence}, "uirevision": name},
    }
