"""Draws simulated variants of a job with their uncertainty, and the errors of its predictors."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from frontend.figures.points import numbers
from frontend.figures.rows import Other, Others, PredictorErrors, View
from frontend.figures.theme import THEMES, Theme, axis, empty, layout

ROW_PX = 26


def others(ways: Others, view: View) -> dict[str, Any]:
    """A bar for each alternative policy: the time that it saves or costs, with the range over seeds."""
    name = "others"
    found = [way for way in ways.ways if way.kind == "policy"]
    if not found:
        return empty(name, ways.reason or "No other policies were simulated: none is compatible with this job.")
    rows = [way for way in found if not way.unfinished]
    return _bars(name, rows, _caption(replace(ways, ways=tuple(found)), len(found) - len(rows)), view)


def machine_changes(ways: Others, view: View) -> dict[str, Any]:
    """A bar for each change of machines, the largest effect on top."""
    name = "machine-changes"
    found = [way for way in ways.ways if way.kind == "machines"]
    if not found:
        return empty(name, ways.reason or "No cluster changes were simulated.")
    rows = sorted((way for way in found if not way.unfinished), key=lambda way: (-abs(way.saved), way.name))
    return _bars(name, rows, _changes_caption(ways, rows, len(found) - len(rows)), view)


def _bars(name: str, rows: Sequence[Other], caption: str, view: View) -> dict[str, Any]:
    theme = THEMES[view.theme]
    return {
        "data": [
            {
                "type": "bar",
                "orientation": "h",
                "name": "Time saved",
                "y": [_label(way) for way in rows],
                "x": numbers(np.array([way.saved * 100 for way in rows]).round(2)),
                "error_x": {
                    "type": "data",
                    "symmetric": False,
                    "array": numbers(np.array([(way.high - way.saved) * 100 for way in rows]).round(2)),
                    "arrayminus": numbers(np.array([(way.saved - way.low) * 100 for way in rows]).round(2)),
                    "color": theme.text,
                    "thickness": 1.5,
                    "width": 4,
                },
                "marker": {"color": [_colour(way, theme) for way in rows]},
                "hovertemplate": "%{y}: %{x:.3~g}% of the time saved<extra></extra>",
                "meta": "Time saved (%)",
            }
        ],
        "layout": layout(
            theme,
            name=name,
            caption=caption,
            height=ROW_PX * len(rows) + 90,
            hovermode="closest",
            showlegend=False,
            bargap=max(0.2, 0.8 - 0.15 * len(rows)),
            xaxis=axis(theme, "Time saved (%)", zeroline=True, zerolinecolor=theme.muted),
            yaxis=axis(theme, type="category", autorange="reversed", showgrid=False),
        ),
    }


def predictor_errors(found: PredictorErrors, view: View) -> dict[str, Any]:
    """A line for each predictor that runs side by side; the one that decides shares is thick."""
    name = "predictor-errors"
    if not len(found.iteration):
        return empty(
            name,
            "No data yet: lines appear once predictors are scored. This requires a batching policy with predictors.",
        )
    theme = THEMES[view.theme]
    return {
        "data": [
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": f"{predictor} (active)" if predictor == found.acting else predictor,
                "x": numbers(found.iteration),
                "y": numbers(errors),
                "line": {
                    "color": theme.category(place),
                    "dash": theme.dash(place),
                    "width": 3 if predictor == found.acting else 1.5,
                },
                "marker": {"size": 6, "symbol": place},
                "cliponaxis": False,
                "hovertemplate": "%{y:.1%} off",
            }
            for place, (predictor, errors) in enumerate(sorted(found.errors.items()))
        ],
        "layout": layout(
            theme,
            name=name,
            caption=f"Mean relative error of the predicted speeds; {found.acting} is the active predictor.",
            xaxis=axis(theme, "Iteration", rangemode="nonnegative"),
            yaxis=axis(theme, "Error", tickformat=".0%", rangemode="tozero"),
        ),
    }


def _label(way: Other) -> str:
    return way.name if way.whole else f"{way.name} ({way.samples:.0%} of the samples)"


def _colour(way: Other, theme: Theme) -> str:
    if not way.whole:
        return theme.coordination
    return theme.compute if way.saved >= 0 else theme.waiting


def _changes_caption(ways: Others, rows: Sequence[Other], left_out: int) -> str:
    """A caption with the largest effect and the meaning of the bars."""
    most = next((way for way in rows if way.whole), None)
    verb = "save" if most is not None and most.saved >= 0 else "cost"
    lead = f"{_capital(most.name)} would {verb} {abs(most.saved):.0%} of the time." if most is not None else ""
    more = f" Not shown, because their runs did not complete: {left_out}." if left_out else ""
    return (
        f"{lead} Under the current policies, with the same global batch. Bars to the right save time, bars to"
        " the left cost time. Results for bandwidth are upper bounds."
        " Whiskers show the minimum and maximum of single runs;"
        f" differences below {ways.doubt:.0%} are within the model error.{more}"
    ).strip()


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _caption(ways: Others, left_out: int) -> str:
    best = ways.best
    sure = "in every run" if best is not None and best.low > 0 else "but not in every run"
    lead = (
        f"Best: {best.name}, which would save {best.saved:.0%} of the time, {sure}."
        if best is not None and best.saved > 0
        else "No other variant that does the same work saves time."
    )
    if any(not way.whole for way in ways.ways):
        lead += " Grey bars process fewer samples: less work, not the same work in less time."
    more = f" Not shown, because their runs did not complete: {left_out}." if left_out else ""
    return (
        f"{lead} Whiskers show the minimum and maximum of single runs; differences below {ways.doubt:.0%} are within"
        f" the model error. Left of zero the variant is slower.{more}"
    )
