"""Whether it learns: training loss and held-out accuracy, against time, iterations or samples."""

from typing import Any, Final

import numpy as np

from frontend.figures.points import Numbers, budget, extremes, numbers, sampling_note, smoothed
from frontend.figures.rows import Convergence, View
from frontend.figures.theme import THEMES, Theme, axis, empty, layout

X_TITLES = {"time": "Time since start (s)", "iteration": "Iteration", "samples": "Samples processed"}
SCALES: Final = {"linear": "Linear", "log": "Log"}
"""Of the axis of losses."""

GAP = 0.06
NOT_LEARNED = "No loss was reported and nothing was scored: a simulation of timing alone learns nothing."


def convergence(rows: Convergence, view: View) -> dict[str, Any]:
    """Loss above, accuracy below with its target, on one x axis."""
    name = "convergence"
    if not len(rows.iteration) and not len(rows.scored_iteration):
        return empty(name, "Loss and accuracy appear with the first reported iteration and the first evaluation.")
    if not has_learned(rows):
        return empty(name, NOT_LEARNED)
    theme = THEMES[view.theme]
    x, scored_x = x_of(rows, view)
    drawn_x, drawn_y = extremes(x, rows.loss, budget(3))
    raw = _line("Training loss", drawn_x, drawn_y, theme.category(0), "y", {"width": 1.5})
    training = [raw]
    if view.smooth > 1:
        smooth_x, smooth_y = extremes(x, smoothed(rows.loss, view.smooth), budget(3))
        name_of_mean = f"Training loss, mean of {view.smooth}"
        training = [
            raw | {"opacity": 0.45},
            _line(name_of_mean, smooth_x, smooth_y, theme.category(0), "y", {"width": 2}),
        ]
    return {
        "data": [
            *training,
            _line("Held-out loss", scored_x, rows.scored_loss, theme.category(1), "y", {"width": 2}, markers=True),
            _line("Accuracy", scored_x, rows.scored_accuracy, theme.category(2), "y2", {"width": 2}, markers=True),
        ],
        "layout": layout(
            theme,
            name=revision(name, view),
            caption=_caption(rows, view),
            sampling=sampling_note(len(x), len(drawn_x)),
            xaxis=axis(theme, X_TITLES[view.x], anchor="y2", rangemode="tozero"),
            yaxis=loss_axis(theme, view),
            yaxis2=accuracy_axis(theme, scored=len(rows.scored_accuracy) > 0),
            **_target(rows.target, theme),
        ),
    }


def has_learned(rows: Convergence) -> bool:
    """Whether any loss or accuracy is known."""
    return any(np.isfinite(values).any() for values in (rows.loss, rows.scored_loss, rows.scored_accuracy))


def revision(name: str, view: View) -> str:
    """Zoom is kept as long as the axes stay as they are."""
    return f"{name}:{view.x}:log" if view.scale == "log" else f"{name}:{view.x}"


def loss_axis(theme: Theme, view: View) -> dict[str, Any]:
    """The upper axis; by factors of ten where the reader wants to see small losses apart."""
    # D2: ticks at 1, 2 and 5 of each power of ten; more of them lose their zeros.
    scale: dict[str, Any] = (
        {"type": "log", "dtick": "D2", "tickformat": "~g"} if view.scale == "log" else {"rangemode": "tozero"}
    )
    return axis(theme, "Loss", domain=[0.5 + GAP / 2, 1], **scale)


def accuracy_axis(theme: Theme, *, scored: bool) -> dict[str, Any]:
    """The lower axis; from 0 to 100 % while nothing was scored, for then the library would make up a range."""
    return axis(theme, "Accuracy", domain=[0, 0.5 - GAP / 2], tickformat=".0%", **({} if scored else {"range": [0, 1]}))


def _line(
    name: str, x: Numbers, y: Numbers, colour: str, yaxis: str, line: dict[str, Any], *, markers: bool = False
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers" if markers else "lines",
        "name": name,
        "x": numbers(x),
        "y": numbers(y),
        "xaxis": "x",
        "yaxis": yaxis,
        "line": {"color": colour, **line},
        "marker": {"size": 6, "symbol": "circle" if yaxis == "y" else "diamond"},
        "hovertemplate": "%{y:.4~f}" if yaxis == "y" else "%{y:.1%}",
    }


def _target(target: float | None, theme: Theme) -> dict[str, Any]:
    if target is None:
        return {}
    rule = {"type": "line", "xref": "paper", "yref": "y2", "x0": 0, "x1": 1, "y0": target, "y1": target}
    note = {
        "text": f"target {target:.1%}",
        "xref": "paper",
        "yref": "y2",
        "x": 1,
        "y": target,
        "xanchor": "right",
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"color": theme.muted, "size": 11},
    }
    return {"shapes": [rule | {"line": {"color": theme.muted, "width": 1, "dash": "dot"}}], "annotations": [note]}


def x_of(rows: Convergence, view: View) -> tuple[Numbers, Numbers]:
    """Where the training losses and where the scores stand on the view's axis."""
    if view.x == "iteration":
        return rows.iteration, rows.scored_iteration
    if view.x == "samples":
        return rows.samples, rows.scored_samples
    return rows.elapsed_s, rows.scored_elapsed_s


def _caption(rows: Convergence, view: View) -> str:
    against = {"time": "time since the first iteration", "iteration": "iterations", "samples": "samples"}[view.x]
    if not len(rows.scored_accuracy):
        return f"Training loss against {against}; the held-out split has not been scored yet."
    best = float(max(rows.scored_accuracy))
    return f"Loss and held-out accuracy against {against}; best accuracy so far {best:.1%}."
