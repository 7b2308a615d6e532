"""Draws the busy time of the slowest worker that share decisions predicted against the measured time."""

from typing import Any, Final

import numpy as np

from frontend.figures.points import numbers
from frontend.figures.rows import Predictions, View
from frontend.figures.theme import THEMES, axis, empty, layout

MINUS: Final = "\u2212"

MISSED: Final = 0.25
"""A prediction with a larger relative error is marked as a miss."""


def predictions(found: Predictions, view: View) -> dict[str, Any]:
    """A line of predicted and one of measured times of the slowest worker; misses are marked by crosses."""
    name = "predictions"
    if not len(found.iteration):
        return empty(name, "No data yet: times appear after workers have trained with predicted shares.")
    theme, off = THEMES[view.theme], found.off
    missed = np.abs(off) > MISSED
    lines = (
        ("Predicted", found.predicted_s, {"color": theme.category(1), "dash": "dash", "width": 2}, "circle-open"),
        ("Measured", found.measured_s, {"color": theme.category(0), "width": 2}, "circle"),
    )
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": title,
            "x": numbers(found.iteration),
            "y": numbers((seconds * 1000).round(3)),
            "line": line,
            "marker": {"size": 5, "symbol": symbol},
            "cliponaxis": False,
            "hovertemplate": "%{y:.4~g} ms",
        }
        for title, seconds, line, symbol in lines
    ]
    if missed.any():
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": f"Error above {MISSED:.0%}",
                "x": numbers(found.iteration[missed]),
                "y": numbers((found.measured_s[missed] * 1000).round(3)),
                "text": [f"{each:+.0%}".replace("-", MINUS) for each in off[missed]],
                "marker": {"size": 11, "symbol": "x-thin", "line": {"width": 2, "color": theme.waiting}},
                "cliponaxis": False,
                "hovertemplate": "%{text} of the prediction",
            }
        )
    return {
        "data": data,
        "layout": layout(
            theme,
            name=name,
            caption=_caption(found, int(missed.sum())),
            meta={"name": name, "follow": "?tab=timeline&first-timeline={x}"},
            xaxis=axis(theme, "First iteration of the shares", rangemode="nonnegative"),
            yaxis=axis(theme, "Slowest worker (ms)", rangemode="tozero"),
        ),
    }


def _caption(found: Predictions, missed: int) -> str:
    off = np.abs(found.off)
    last = f"the last {len(off)} decisions" if len(off) > 1 else "one decision"
    return (
        f"Share decisions ({last}): predicted and measured time of the slowest worker in the first iteration"
        f" under them. Half are within {float(np.median(off)):.1%}, nine in ten within"
        f" {float(np.quantile(off, 0.9)):.1%}; {missed} with an error above {MISSED:.0%}."
    )
