"""Draws loss, accuracy and global batch against time, iterations, updates, epochs or samples."""

import math
from typing import Any, Final

import numpy as np

from frontend.figures.points import Numbers, budget, extremes, numbers, sampling_note, smoothed
from frontend.figures.rows import Convergence, View
from frontend.figures.theme import THEMES, Theme, axis, empty, faded, layout

X_TITLES: Final = {
    "time": "Time since start (s)",
    "iteration": "Iteration",
    "update": "Updates pushed",
    "epoch": "Epochs",
    "samples": "Samples processed",
}
SCALES: Final = {"linear": "Linear", "log": "Log"}
"""Scales of the loss axis."""

AGAINST: Final = {
    "time": "time since the first iteration",
    "iteration": "iterations",
    "update": "updates of all workers",
    "epoch": "epochs",
    "samples": "samples",
}
GAP = 0.06
NO_EPOCHS: Final = "Epochs are unknown: no worker of this job has reported the size of its training split."
NOT_LEARNED = "No loss or accuracy: this is a timing-only simulation without training."


def convergence(rows: Convergence, view: View) -> dict[str, Any]:
    """Loss above with the global batch, accuracy below with its target, on one x axis."""
    name = "convergence"
    if not len(rows.iteration) and not len(rows.scored_iteration):
        return empty(
            name, "No data yet: loss and accuracy appear after the first reported iteration and the first evaluation."
        )
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
            _line("Validation loss", scored_x, rows.scored_loss, theme.category(1), "y", {"width": 2}, markers=True),
            _line("Accuracy", *_accuracies(rows, x, scored_x), theme.category(2), "y2", {"width": 2}, markers=True),
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
            **_targets(rows, view, theme),
        ),
    }


def has_learned(rows: Convergence) -> bool:
    """Whether any loss or accuracy is known."""
    return any(np.isfinite(values).any() for values in (rows.loss, rows.scored_loss, rows.scored_accuracy))


def has_axis(rows: Convergence, view: View) -> bool:
    """Whether positions on the view's axis are known."""
    return view.x != "epoch" or bool(rows.training_samples)


def revision(name: str, view: View) -> str:
    """Zoom is kept as long as the axes are the same."""
    return f"{name}:{view.x}:log" if view.scale == "log" else f"{name}:{view.x}"


def loss_axis(theme: Theme, view: View) -> dict[str, Any]:
    """The upper axis, linear or logarithmic."""
    # D2: ticks at 1, 2 and 5 of each power of ten; with more ticks, their labels lose their zeros.
    scale: dict[str, Any] = (
        {"type": "log", "dtick": "D2", "tickformat": "~g"} if view.scale == "log" else {"rangemode": "tozero"}
    )
    return axis(theme, "Loss", domain=[0.5 + GAP / 2, 1], **scale)


def accuracy_axis(theme: Theme, *, scored: bool) -> dict[str, Any]:
    """The lower axis; from 0 to 100 % before the first score, since the library would otherwise choose a range."""
    return axis(theme, "Accuracy", domain=[0, 0.5 - GAP / 2], tickformat=".0%", **({} if scored else {"range": [0, 1]}))


def _accuracies(rows: Convergence, x: Numbers, scored_x: Numbers) -> tuple[Numbers, Numbers]:
    """The accuracies and their positions. Before the first one, a point without a value: the library cannot place an
    axis without points, and logs a warning.
    """
    return (scored_x, rows.scored_accuracy) if len(scored_x) else (x[:1], np.full(len(x[:1]), np.nan))


def batch_axis(theme: Theme) -> dict[str, Any]:
    """The axis of the global batch. Omitted without iterations: Plotly cannot scale an axis whose lines are empty."""
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
    """Samples per iteration over all workers, on a separate axis beside the loss axis."""
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


def _targets(rows: Convergence, view: View, theme: Theme) -> dict[str, Any]:
    """Lines at the target accuracy and the target loss, and where each was reached."""
    accuracy, (x, scored_x) = _accuracy(rows, view), x_of(rows, view)
    shapes: list[dict[str, Any]] = []
    notes = []
    if accuracy is not None:
        shapes += _rule(accuracy, "y2", _at(scored_x, rows.first_score(accuracy)), theme)
        notes.append(_note(f"target {accuracy:.1%}", accuracy, "y2", theme))
    if view.loss is not None:
        shapes += _rule(view.loss, "y", _at(scored_x if rows.has_scored_loss else x, rows.first_loss(view.loss)), theme)
        # Annotations are placed at the exponent of a logarithmic axis, lines at the number itself.
        height = math.log10(view.loss) if view.scale == "log" else view.loss
        notes.append(_note(f"target {view.loss:.4g}", height, "y", theme))
    return {"shapes": shapes, "annotations": notes} if shapes else {}


def _accuracy(rows: Convergence, view: View) -> float | None:
    """The reader's target, otherwise the job's."""
    return view.accuracy if view.accuracy is not None else rows.target


def _at(x: Numbers, place: int | None) -> float | None:
    return round(float(x[place]), 4) if place is not None else None


def _rule(target: float, yaxis: str, reached: float | None, theme: Theme) -> list[dict[str, Any]]:
    """A line at the target, and one down to the axis where it was reached."""
    line = {"line": {"color": theme.muted, "width": 1, "dash": "dot"}}
    rule = {"type": "line", "xref": "paper", "yref": yaxis, "x0": 0, "x1": 1, "y0": target, "y1": target} | line
    if reached is None:
        return [rule]
    foot = {"yref": yaxis, "y0": 0} if yaxis == "y2" else {"yref": f"{yaxis} domain", "y0": 0}
    top = {"y1": target} if yaxis == "y2" else {"y1": 1}
    return [rule, {"type": "line", "xref": "x", "x0": reached, "x1": reached} | foot | top | line]


def _note(text: str, y: float, yaxis: str, theme: Theme) -> dict[str, Any]:
    return {
        "text": text,
        "xref": "paper",
        "yref": yaxis,
        "x": 1,
        "y": y,
        "xanchor": "right",
        "yanchor": "bottom",
        "showarrow": False,
        "bgcolor": faded(theme.surface, 0.8),
        "font": {"color": theme.muted, "size": 11},
    }


def x_of(rows: Convergence, view: View) -> tuple[Numbers, Numbers]:
    """Positions of the training losses and of the scores on the view's axis."""
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
    against, reached = AGAINST[view.x], f"{_accuracy_sentence(rows, view)}{_loss_sentence(rows, view)}"
    if not len(rows.scored_accuracy):
        return f"Training loss against {against}; not evaluated on the validation split yet.{reached}"
    best = float(max(rows.scored_accuracy))
    return f"Loss and validation accuracy against {against}; best accuracy so far {best:.1%}.{reached}"


def _accuracy_sentence(rows: Convergence, view: View) -> str:
    """When the target accuracy was reached."""
    target = _accuracy(rows, view)
    there = rows.first_score(target) if target is not None else None
    if target is None or there is None:
        return f" The target of {target:.1%} has not been reached." if view.accuracy is not None else ""
    return f" The target of {target:.1%} was reached after {_when(rows, there, scored=True)}."


def _loss_sentence(rows: Convergence, view: View) -> str:
    """When the target loss was reached."""
    if view.loss is None:
        return ""
    which = "validation" if rows.has_scored_loss else "training"
    there = rows.first_loss(view.loss)
    if there is None:
        return f" A {which} loss of {view.loss:.4g} has not been reached."
    when = _when(rows, there, scored=rows.has_scored_loss)
    return f" A {which} loss of {view.loss:.4g} was reached after {when}."


def _when(rows: Convergence, there: int, *, scored: bool) -> str:
    """A point in time in each unit that is shown."""
    columns = ("elapsed_s", "iteration", "samples")
    elapsed_s, iteration, samples = (getattr(rows, f"scored_{name}" if scored else name)[there] for name in columns)
    epochs = f", {samples / rows.training_samples:.3g} epochs" if rows.training_samples else ""
    return f"{elapsed_s:.1f} s, {iteration:,} iterations, {samples:,} samples{epochs}"
