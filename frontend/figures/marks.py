"""Adds decisions and events as marks to charts: dotted lines with text on hover. Pure.

The marks are traces of the figure, so that an exported figure includes them.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from frontend.figures.points import numbers
from frontend.figures.rows import Mark, View
from frontend.figures.theme import THEMES
from frontend.figures.verbatim import LINE

MOST: Final = 80
"""Maximum number of marks on a chart: the latest ones."""

AXIS: Final = "yaxis99"
UID: Final = "marks"
"""Distinguishes this trace from the figure's own in tables and exports."""


def marked(figure: dict[str, Any], marks: Sequence[Mark], view: View) -> dict[str, Any]:
    """The figure with its marks; those at one position are merged."""
    if view.marks == "off" or not figure["data"] or not marks:
        return figure
    theme, places = THEMES[view.theme], _by_place(marks, view.x)
    noted = {mark.at(view.x) for mark in marks if mark.is_note}
    x = np.array(list(places), np.float64)
    lines = [
        {
            "type": "line",
            "xref": "x",
            "yref": "paper",
            "x0": at,
            "x1": at,
            "y0": 0,
            "y1": 1,
            "layer": "below",
            "line": {"color": theme.muted, "width": 1, "dash": "dot"},
        }
        for at in places
    ]
    trace = {
        "type": "scatter",
        "mode": "markers",
        "uid": UID,
        "name": "Decisions and notes" if noted else "Decisions",
        "x": numbers(x),
        "y": [1] * len(places),
        "yaxis": "y99",
        "text": [LINE.join(words) for words in places.values()],
        "marker": {
            "symbol": ["star" if at in noted else "triangle-down" for at in places] if noted else "triangle-down",
            "size": 11 if noted else 9,
            "color": theme.text,
        },
        "hovertemplate": "%{text}<extra></extra>",
        "showlegend": False,
        "cliponaxis": False,
    }
    layout = figure["layout"]
    axis = {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True}
    # Plotly pads the axis for half a marker: without this an axis that starts at 0 would start below 0.
    xaxis = {"rangemode": "nonnegative", **layout["xaxis"]}
    shapes = [*layout.get("shapes", []), *lines]
    return {"data": [*figure["data"], trace], "layout": {**layout, "xaxis": xaxis, AXIS: axis, "shapes": shapes}}


def _by_place(marks: Sequence[Mark], x: str) -> dict[float, list[str]]:
    """The text at each position of the axis, in order."""
    places: dict[float, list[str]] = {}
    for mark in sorted(marks, key=lambda mark: mark.elapsed_s)[-MOST:]:
        if (place := mark.at(x)) is not None:
            places.setdefault(place, []).append(mark.words)
    return places
