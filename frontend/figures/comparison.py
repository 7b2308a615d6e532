"""Draws several jobs in one figure: their learning curves and the distribution of their iteration times."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from frontend.figures.convergence import (
    NO_EPOCHS,
    NOT_LEARNED,
    X_TITLES,
    accuracy_axis,
    has_axis,
    has_learned,
    loss_axis,
    revision,
    x_of,
)
from frontend.figures.points import Numbers, budget, extremes, numbers, sampling_note
from frontend.figures.rows import Compared, View
from frontend.figures.theme import THEMES, Theme, axis, empty, layout
from frontend.figures.verbatim import untouched

QUANTILES = 400
ROOM = 1.05
"""The time axis ends at this many times the longest iteration, so that the end of each curve is visible."""


def compared_learning(jobs: Sequence[Compared], view: View) -> dict[str, Any]:
    """Validation loss above, accuracy below, a line for each job on one x axis."""
    name = "learning"
    if not any(len(job.learned.scored_iteration) or len(job.learned.iteration) for job in jobs):
        return empty(name, "No data yet: lines appear after the first evaluation of one of the jobs.")
    if not any(has_learned(job.learned) for job in jobs):
        return empty(name, NOT_LEARNED)
    if not any(has_axis(job.learned, view) for job in jobs):
        return empty(name, NO_EPOCHS)
    theme, points, drawn = THEMES[view.theme], 0, 0
    data: list[dict[str, Any]] = []
    for place, job in enumerate(jobs):
        if not has_axis(job.learned, view):
            continue
        x, scored_x = x_of(job.learned, view)
        thin_x, thin_y = extremes(x, job.learned.loss, budget(3 * len(jobs)))
        points, drawn = points + len(x), drawn + len(thin_x)
        data += [
            _line(job, "training loss", thin_x, thin_y, place, theme, "y", pale=True),
            _line(job, "validation loss", scored_x, job.learned.scored_loss, place, theme, "y"),
            _line(job, "accuracy", scored_x, job.learned.scored_accuracy, place, theme, "y2", legend=True),
        ]
    return {
        "data": data,
        "layout": layout(
            theme,
            name=revision(name, view),
            caption="Validation loss (training loss in a paler colour) and accuracy of each job.",
            sampling=sampling_note(points, drawn),
            xaxis=axis(theme, X_TITLES[view.x or "time"], anchor="y2", rangemode="tozero"),
            yaxis=loss_axis(theme, view),
            yaxis2=accuracy_axis(theme, scored=any(len(job.learned.scored_accuracy) for job in jobs)),
        ),
    }


def compared_lengths(jobs: Sequence[Compared], view: View) -> dict[str, Any]:
    """Cumulative distribution of iteration times, a step line for each job."""
    name = "iteration-lengths"
    if not any(len(job.iteration_s) for job in jobs):
        return empty(name, "No data yet: lines appear after the first reported iteration of one of the jobs.")
    theme = THEMES[view.theme]
    end_ms = ROOM * max(float(job.iteration_s.max()) for job in jobs if len(job.iteration_s)) * 1000
    return {
        "data": [_steps(job, place, end_ms, theme) for place, job in enumerate(jobs) if len(job.iteration_s)],
        "layout": layout(
            theme,
            name=name,
            caption="Cumulative distribution of iteration times: further left is faster, steeper is more stable.",
            hovermode="closest",
            xaxis=axis(theme, "Iteration time (ms)", range=[0, end_ms]),
            yaxis=axis(theme, "Share of iterations", tickformat=".0%", range=[0, 1.02]),
        ),
    }


def _steps(job: Compared, place: int, end_ms: float, theme: Theme) -> dict[str, Any]:
    """The steps from the shortest iteration to the longest, then level to the end of the axis."""
    shares = np.linspace(0, 1, min(QUANTILES, len(job.iteration_s)) + 1)
    lengths = np.append(np.quantile(job.iteration_s * 1000, shares, method="inverted_cdf"), end_ms)
    shares = np.append(shares, 1.0)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": job.label,
        "x": numbers(lengths.round(3)),
        "y": numbers(shares.round(4)),
        "line": {"color": theme.category(place), "dash": theme.dash(place), "width": 2, "shape": "hv"},
        "hovertemplate": f"{untouched(job.label)}: %{{y:.0%}} take at most %{{x:.4~g}} ms<extra></extra>",
    }


def _line(
    job: Compared,
    what: str,
    x: Numbers,
    y: Numbers,
    place: int,
    theme: Theme,
    yaxis: str,
    *,
    pale: bool = False,
    legend: bool = False,
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines" if pale else "lines+markers",
        "name": job.label,
        "legendgroup": job.label,
        "showlegend": legend,
        "x": numbers(x),
        "y": numbers(y),
        "xaxis": "x",
        "yaxis": yaxis,
        "opacity": 0.6 if pale else 1.0,
        "line": {"color": theme.category(place), "dash": theme.dash(place), "width": 1.5 if pale else 2},
        "marker": {"size": 5, "symbol": place},
        "hovertemplate": f"{untouched(job.label)} {what}: %{{y:.4~f}}<extra></extra>",
        "meta": f"{job.label} {what}",
    }
