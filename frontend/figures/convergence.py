"""Whether it learns: loss, accuracy and global batch, against time, iterations, updates, epochs or samples."""

from typing import Any, Final

import numpy as np

from frontend.figures.points import Numbers, budget, extremes, numbers, sampling_note, smoothed
from frontend.figures.rows import Convergence, View
from frontend.figures.theme import THEMES, Theme, axis, empty, layout

X_TITLES: Final = {
    "time": "Time since start (s)",
    "iteration": "Iteration",
    "update": "Updates pushed",
    "epoch": "Epochs",
    "samples": "Samples processed",
}
SCALES: Final = {"linear": "Linear", "log": "Log"}
"""Of the axis of losses."""

AGAINST: Final = {
    "time": "time since the first iteration",
    "iteration": "iterations",
    "update": "updates of all workers",
    "epoch": "epochs",
    "samples": "samples",
}
GAP = 0.06
NO_EPOCHS: Final = (
    "How many samples make an epoch is not known: no worker of this job has said how large its training split is."
)
NOT_LEARNED = "No loss was reported and nothing was scored: a simulation of timing alone learns nothing."


def convergence(rows: Convergence, view: View) -> dict[str, Any]:
    """Loss above with the global batch, accuracy below with its target, on one x axis."""
    name = "convergence"
    if not len(rows.iteration) and not len(rows.scored_iteration):
        return empty(name, "Loss and accuracy appear with the first reported iteration and the first evaluation.")
    if not has_learned(rows):
        return empty(name, NOT_LEARNED)
    if not has_axis(rows, view):
        return empty(name, NO_EPOCHS)
    theme = THEMES[view.theme]
    x, scored_x = x_of(rows, view)
    drawn_x, drawn_y = extremes(x, rows.loss, budget(3))
    raw = _line("Training loss", drawn_x, drawn_y, theme.category(0), "y", {"width": 1.5})
    training = [raw]
    if view.smooth > 1:
        smooth_x, smooth_y = extremes(x, smoothed(rows.loss, view.smooth), budget(3))
        name_of_mean = f"Mean of {view.smooth}"
        training = [
            raw | {"opacity": 0.45},
            _line(name_of_mean, smooth_x, smooth_y, theme.category(0), "y", {"width": 2}),
        ]
    return {
        "data": [
            *training,
            _line("Held-out loss", scored_x, rows.scored_loss, theme.category(1), "y", {"width": 2}, markers=True),
            _line("Accuracy", scored_x, rows.scored_accuracy, theme.category(2), "y2", {"width": 2}, markers=True),
            *([_batch(*extremes(x, rows.batch, budget(4)), theme)] if len(x) else []),
        ],
        "layout": layout(
            theme,
            name=revision(name, view),
            caption=_caption(rows, view),
            sampling=sampling_note(len(x), len(drawn_x)),
            xaxis=axis(theme, X_TITLES[view.x], anchor="y2", rangemode="tozero"),
            yaxis=loss_axis(theme, view),
            yaxis2=accuracy_axis(theme, scored=len(rows.scored_accuracy) > 0),
            **({"yaxis3": batch_axis(theme)} if len(x) else {}),
            **_target(rows, scored_x, theme),
        ),
    }


def has_learned(rows: Convergence) -> bool:
    """Whether any loss or accuracy is known."""
    return any(np.isfinite(values).any() for values in (rows.loss, rows.scored_loss, rows.scored_accuracy))


def has_axis(rows: Convergence, view: View) -> bool:
    """Whether it is known where things stand on the view's axis."""
    return view.x != "epoch" or bool(rows.training_samples)


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


def batch_axis(theme: Theme) -> dict[str, Any]:
    """Beside the losses' own. Only with iterations: the library draws no end of an axis whose lines have no points."""
    return axis(
        theme,
        "Global batch",
        overlaying="y",
        side="right",
        rangemode="tozero",
        showgrid=False,
        nticks=3,
        tickmode="auto",
    )


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


def _batch(x: Numbers, batch: Numbers, theme: Theme) -> dict[str, Any]:
    """Samples of an iteration over all workers, on an axis of its own beside the losses'."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "Global batch",
        "x": numbers(x),
        "y": numbers(batch.round(3)),
        "xaxis": "x",
        "yaxis": "y3",
        "line": {"color": theme.muted, "width": 1.5, "dash": "dot", "shape": "hv"},
        "hovertemplate": "%{y:.4~g} samples",
    }


def _target(rows: Convergence, scored_x: Numbers, theme: Theme) -> dict[str, Any]:
    """The accuracy that is aimed at, and where it was reached."""
    target, reached = rows.target, rows.reached_at
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
    line = {"color": theme.muted, "width": 1, "dash": "dot"}
    shapes = [rule | {"line": line}]
    if reached is not None:
        at = round(float(scored_x[reached]), 4)
        there = {"type": "line", "xref": "x", "yref": "y2", "x0": at, "x1": at, "y0": 0, "y1": target}
        shapes.append(there | {"line": line})
    return {"shapes": shapes, "annotations": [note]}


def x_of(rows: Convergence, view: View) -> tuple[Numbers, Numbers]:
    """Where the training losses and where the scores stand on the view's axis."""
    if view.x == "iteration":
        return rows.iteration, rows.scored_iteration
    if view.x == "samples":
        return rows.samples, rows.scored_samples
    if view.x == "update":
        return rows.updates, rows.scored_updates
    if view.x == "epoch":
        epoch = rows.training_samples or 1
        return rows.samples / epoch, rows.scored_samples / epoch
    return rows.elapsed_s, rows.scored_elapsed_s


def _caption(rows: Convergence, view: View) -> str:
    against = AGAINST[view.x]
    if not len(rows.scored_accuracy):
        return f"Training loss against {against}; the held-out split has not been scored yet."
    best = float(max(rows.scored_accuracy))
    return f"Loss and held-out accuracy against {against}; best accuracy so far {best:.1%}.{_reached(rows)}"


def _reached(rows: Convergence) -> str:
    """When the target was reached, in every unit that it is asked in."""
    there = rows.reached_at
    if there is None:
        return ""
    epochs = f", {rows.scored_samples[there] / rows.training_samples:.3g} epochs" if rows.training_samples else ""
    return (
        f" The target of {rows.target:.1%} was reached after {rows.scored_elapsed_s[there]:.1f} s,"
        f" {rows.scored_iteration[there]:,} iterations, {rows.scored_samples[there]:,} samples{epochs}."
    )
