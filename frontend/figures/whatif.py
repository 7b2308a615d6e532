"""What a job would do otherwise, with the uncertainty, and how far its predictors are off."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from frontend.figures.points import numbers
from frontend.figures.rows import Other, Others, PredictorErrors, View
from frontend.figures.theme import THEMES, Theme, axis, empty, layout

ROW_PX = 26


def others(ways: Others, view: View) -> dict[str, Any]:
    """A bar for each other policy: the part of the time that it saves, or costs, with what single seeds gave."""
    name = "others"
    found = [way for way in ways.ways if way.kind == "policy"]
    if not found:
        return empty(name, ways.reason or "No other policy was played: none goes together with the rest of this job.")
    rows = [way for way in found if not way.unfinished]
    return _bars(name, rows, _told(replace(ways, ways=tuple(found)), len(found) - len(rows)), view)


def machine_changes(ways: Others, view: View) -> dict[str, Any]:
    """A bar for each change of machines, that which matters most on top: to the right a gain, to the left a loss."""
    name = "machine-changes"
    found = [way for way in ways.ways if way.kind == "machines"]
    if not found:
        return empty(name, ways.reason or "No change of machines was played.")
    rows = sorted((way for way in found if not way.unfinished), key=lambda way: (-abs(way.saved), way.name))
    return _bars(name, rows, _changes_told(ways, rows, len(found) - len(rows)), view)


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
    """A line for each predictor that runs beside the others; that which shares are decided with is the thick one."""
    name = "predictor-errors"
    if not len(found.iteration):
        return empty(
            name,
            "Lines appear once predictors that run side by side have been scored. This takes a policy that predicts.",
        )
    theme = THEMES[view.theme]
    return {
        "data": [
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": f"{predictor} (acting)" if predictor == found.acting else predictor,
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
            caption=f"Mean error of the predicted speeds, relative to what was measured; {found.acting} decides.",
            xaxis=axis(theme, "Iteration", rangemode="nonnegative"),
            yaxis=axis(theme, "Off by", tickformat=".0%", rangemode="tozero"),
        ),
    }


def _label(way: Other) -> str:
    return way.name if way.whole else f"{way.name} ({way.samples:.0%} of the samples)"


def _colour(way: Other, theme: Theme) -> str:
    if not way.whole:
        return theme.coordination
    return theme.compute if way.saved >= 0 else theme.waiting


def _changes_told(ways: Others, rows: Sequence[Other], left_out: int) -> str:
    """What matters most, and what the figures rest on."""
    most = next((way for way in rows if way.whole), None)
    verb = "save" if most is not None and most.saved >= 0 else "cost"
    lead = f"{_capital(most.name)} would {verb} {abs(most.saved):.0%} of the time." if most is not None else ""
    more = f" Left out, since they did not come to an end: {left_out}." if left_out else ""
    return (
        f"{lead} Under the policies that hold now, with the same global batch; right of zero time is saved, left of it"
        f" lost. More bandwidth shortens all of an exchange, at best. Whiskers are the least and most of single runs;"
        f" less than the model's {ways.doubt:.0%} means nothing.{more}"
    ).strip()


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _told(ways: Others, left_out: int) -> str:
    best = ways.best
    sure = "in every run" if best is not None and best.low > 0 else "but not in every run"
    lead = (
        f"Best: {best.name}, which would save {best.saved:.0%} of the time, {sure}."
        if best is not None and best.saved > 0
        else "No other way that does the same work saves time."
    )
    if any(not way.whole for way in ways.ways):
        lead += " Grey bars are of ways that process fewer samples: less work, not the same in less time."
    more = f" Left out, since they did not come to an end: {left_out}." if left_out else ""
    return (
        f"{lead} Whiskers are the least and most of single runs; on what was recorded the model is {ways.doubt:.0%}"
        f" off, so less than that means nothing. Left of zero it would take longer.{more}"
    )
