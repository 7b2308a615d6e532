"""Draws the series that a script logs: a strip for each with its own scale, since units are unknown."""

from collections.abc import Sequence
from typing import Any, Final, Protocol

from frontend.figures.points import Numbers, budget, extremes, numbers, sampling_note, smoothed
from frontend.figures.rows import View
from frontend.figures.theme import THEMES, axis, empty, layout

STRIP_PX: Final = 110
AROUND_PX: Final = 60
GAP: Final = 0.3
"""Space for a strip's name, as a fraction of its height."""


class Series(Protocol):
    """Values of one name, by iteration."""

    @property
    def name(self) -> str:
        """The name that the script logs it under."""

    @property
    def iteration(self) -> Numbers:
        """Iterations with a value."""

    @property
    def value(self) -> Numbers:
        """Mean over the ranks that logged it."""


def logged(series: Sequence[Series], view: View) -> dict[str, Any]:
    """A strip for each series, under one axis of iterations."""
    if not series:
        return empty("logged", "Lines appear once the script calls pacer.log(name=value).")
    theme, limit, count = THEMES[view.theme], budget(len(series)), len(series)
    points = [extremes(each.iteration, smoothed(each.value, view.smooth), limit) for each in series]
    last = ", ".join(f"{each.name} {each.value[-1]:.4g}" for each in series[:3])
    more = f" and {count - 3} more" if count > 3 else ""
    axes = {
        f"yaxis{row + 1 if row else ''}": axis(
            theme, domain=[1 - (row + 1) / count, 1 - (row + GAP) / count], nticks=4, tickformat="~g"
        )
        for row in range(count)
    }
    return {
        "data": [
            {
                "type": "scatter",
                "mode": "lines",
                "name": each.name,
                "showlegend": False,
                "x": numbers(x),
                "y": numbers(y),
                "xaxis": "x",
                "yaxis": f"y{row + 1 if row else ''}",
                "line": {"width": 2, "color": theme.category(0)},
                "hovertemplate": "%{y:.6~g}",
            }
            for row, (each, (x, y)) in enumerate(zip(series, points, strict=True))
        ],
        "layout": layout(
            theme,
            name="logged",
            caption=f"Values that the script logs, each on its own scale; mean over the ranks. Last: {last}{more}.",
            sampling=sampling_note(sum(len(each.value) for each in series), sum(len(x) for x, _ in points)),
            height=STRIP_PX * count + AROUND_PX,
            xaxis=axis(theme, "Iteration", anchor=f"y{count if count > 1 else ''}"),
            annotations=[
                {
                    "text": each.name,
                    "xref": "paper",
                    "yref": "paper",
                    "x": 0,
                    "y": 1 - (row + GAP) / count,
                    "xanchor": "left",
                    "yanchor": "bottom",
                    "showarrow": False,
                    "font": {"color": theme.text},
                }
                for row, each in enumerate(series)
            ],
            **axes,
        ),
    }
