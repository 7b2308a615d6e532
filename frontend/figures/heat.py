"""Draws a heat map of workers by iterations: a slow machine shows as a row, a slow phase of the cluster as a column."""

import warnings
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frontend.figures.points import Numbers, numbers
from frontend.figures.rows import Floats, Heat, View
from frontend.figures.theme import THEMES, Theme, axis, empty, layout

METRICS: Final = {
    "work": "Work",
    "pace": "Time per sample",
    "waiting": "Waiting",
    "communication": "Communication",
    "iteration": "Iteration time",
    "share": "Batch size",
}
SCALES: Final = {"ratio": "Relative to median", "absolute": "Absolute"}
ROW_PX = 22
LEAST_PX = 260
MOST_PX = 1_400

SPREAD = 4.0
"""The colour scale of a ratio ends at this many times the median, and at its inverse."""

NOTICEABLE = 1.25
"""How far from the median a row or column must be to be mentioned."""

LEAST_CELLS = 3
"""Minimum number of columns that form or end a pattern."""

SCATTERED = 0.03
"""Minimum fraction of slow cells, on at least half of the rows, for the pattern "scattered"."""

FEW_COLUMNS = 30
"""Up to this many columns, they are separated by thin gaps, as rows always are."""

STROKES = 90
"""Maximum number of strokes, which mark missing reports, over the width of the map."""

_SENTENCES: Final = {
    "work": "data loading, compute and communication time, without waiting",
    "pace": "data loading, compute and communication time per sample",
    "waiting": "time spent waiting for other workers",
    "communication": "push and pull time",
    "iteration": "total iteration time",
    "share": "samples processed",
}


def heat_map(heat: Heat, view: View) -> dict[str, Any]:
    """A row for each worker, a column for each window of iterations; cells without reports are hatched."""
    name, metric = "heat-map", view.metric or "work"
    if not heat.values.size:
        return empty(name, "No data yet: the heat map appears after the first reported iteration.")
    theme, ratio = THEMES[view.theme], (view.scale or "ratio") == "ratio"
    shown = over_median(heat.values) if ratio else heat.values * _factor(metric)
    unit = "" if ratio else _unit(metric)
    return {
        "data": [_cells(heat, shown, theme, ratio=ratio, unit=unit)],
        "layout": layout(
            theme,
            name=f"{name}:{metric}:{view.scale}",
            caption=_caption(heat, metric, ratio=ratio),
            sampling=f"highest of every {heat.width} iterations" if heat.width > 1 else "",
            meta={"name": name, "follow": "?tab=timeline&first-timeline={x}"},
            height=max(LEAST_PX, min(MOST_PX, ROW_PX * len(heat.ranks) + 90)),
            hovermode="closest",
            # A cell near the median has the surface's colour: this background keeps it visible as a cell.
            plot_bgcolor=theme.grid,
            shapes=_struck(heat, theme),
            # Its first column reaches half an iteration to the left of 0.
            xaxis=axis(theme, "Iteration", showgrid=False, rangemode="normal"),
            yaxis=axis(theme, autorange="reversed", showgrid=False, ticks="", **_grouping(heat, theme)),
        ),
    }


def over_median(values: Floats) -> Floats:
    """Each cell divided by the median of its column: shows slow workers even when the whole cluster slows down."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = values / _median(values, axis=0)[None, :]
    ratio[~np.isfinite(ratio)] = np.nan
    return ratio


def pattern(values: Floats, labels: tuple[str, ...], first: Numbers | None = None) -> str:
    """Describes the picture: rows that differ point to machines, columns to phases of the whole cluster.

    If only the first columns show differences, those are described. ``first`` has each column's first iteration;
    without it, columns are numbered from 0.
    """
    if values.shape[0] < 2 or values.shape[1] < LEAST_CELLS:
        return ""
    rows = _median(over_median(values), axis=1)
    columns = _median(values, axis=0)
    usual = float(_median(columns[None, :], axis=1)[0])
    slow = [label for label, row in zip(labels, rows, strict=True) if row > NOTICEABLE]
    bad = int(np.sum(columns > 2 * usual)) if usual > 0 else 0
    if slow and len(slow) <= max(1, len(labels) // 2):
        return f"Rows stand out ({_few(slow)}): slow machines rather than single events."
    if beginning := _beginning(values, labels, np.arange(values.shape[1]) if first is None else first):
        return beginning
    if 0 < bad <= values.shape[1] // 4:
        return f"{bad} column{'s' if bad > 1 else ''} stand{'' if bad > 1 else 's'} out: all workers were slow at once."
    ratio = over_median(values)
    slow_cells = ratio > 2 * NOTICEABLE
    if slow_cells.mean() > SCATTERED and slow_cells.any(axis=1).mean() >= 0.5:
        return (
            "Single cells stand out across the map: the cause is the processed data rather than a machine or an event."
        )
    return "No row or column stands out."


def _beginning(values: Floats, labels: tuple[str, ...], first: Numbers) -> str:
    """Describes rows that differed only at the start, or a start that was slow for all; empty if there is none."""
    ratio = over_median(values)
    uneven = _loud_at_first(np.nan_to_num(ratio, nan=1.0).max(axis=0) > NOTICEABLE)
    slow = (
        [label for label, row in zip(labels, _median(ratio[:, :uneven], axis=1), strict=True) if row > NOTICEABLE]
        if uneven
        else []
    )
    if slow:
        verb = "stands" if len(slow) == 1 else "stand"
        return f"{_few(slow)} {verb} out up to iteration {first[uneven]:g}, and no row does after it."
    columns = _median(values, axis=0)
    late = float(_median(columns[None, len(columns) // 2 :], axis=1)[0])
    long = _loud_at_first(columns > NOTICEABLE * late) if late > 0 else 0
    if not long:
        return ""
    times = float(_median(columns[None, :long], axis=1)[0]) / late
    return f"All workers were slower up to iteration {first[long]:g} ({times:.2g} times the later time): warm-up."


def _loud_at_first(loud: NDArray[np.bool_]) -> int:
    """The number of leading columns that differ, if the rest (at least half) does not; otherwise 0."""
    quiet = np.convolve(loud, np.ones(LEAST_CELLS), mode="valid") == 0
    until = int(quiet.argmax()) if quiet.any() else 0
    is_start = LEAST_CELLS <= until <= len(loud) // 2 and loud[:until].mean() >= 0.5
    return until if is_start and loud[until:].mean() <= 0.1 else 0


def _few(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _cells(heat: Heat, shown: Floats, theme: Theme, *, ratio: bool, unit: str) -> dict[str, Any]:
    return {
        "type": "heatmap",
        "x": numbers(heat.first),
        "y": [list(heat.classes), list(heat.labels)] if heat.classes else list(heat.labels),
        "z": [[None if np.isnan(cell) else round(float(cell), 4) for cell in row] for row in shown],
        "hoverongaps": False,
        "xgap": 1 if len(heat.first) <= FEW_COLUMNS else 0,
        "ygap": 1,
        "hovertemplate": "%{y}, iteration %{x}: %{z:.3~g}"
        + (" times the median" if ratio else f" {unit}")
        + "<extra></extra>",
        "colorbar": {
            "thickness": 10,
            "len": 1,
            "outlinewidth": 0,
            "tickfont": {"color": theme.muted},
            "ticksuffix": "x" if ratio else f" {unit}",
        },
        **(_diverging(theme) if ratio else {"colorscale": "Cividis", "zmin": 0}),
    }


def _grouping(heat: Heat, theme: Theme) -> dict[str, Any]:
    """Rows grouped by machine class, with a line between two classes."""
    if not heat.classes:
        return {"type": "category"}
    return {"type": "multicategory", "showdividers": True, "dividercolor": theme.muted, "dividerwidth": 1}


def _struck(heat: Heat, theme: Theme) -> list[dict[str, Any]]:
    """Diagonal strokes over cells without reports, to distinguish them from cells at the median."""
    edges = _edges(heat.first, heat.width)
    step = max(1, -(-len(heat.first) // STROKES))
    strokes = []
    for row, values in enumerate(heat.values):
        missing = np.isnan(values)
        for start in range(0, len(values), step):
            if missing[start : start + step].all():
                end = edges[min(start + step, len(values))]
                strokes.append(f"M{edges[start]:g},{row + 0.5:g}L{end:g},{row - 0.5:g}")
    if not strokes:
        return []
    line = {"color": theme.muted, "width": 1}
    return [{"type": "path", "xref": "x", "yref": "y", "layer": "below", "path": "".join(strokes), "line": line}]


def _edges(first: Numbers, width: int) -> Floats:
    """The edges of columns: half-way between their centres, as in Plotly."""
    middles = (first[1:] + first[:-1]) / 2
    edges: Floats = np.concatenate([[first[0] - width / 2], middles, [first[-1] + width / 2]])
    return edges


def _diverging(theme: Theme) -> dict[str, Any]:
    """A diverging scale: blue below the median, vermillion above, the page's background in the middle."""
    return {
        "colorscale": [[0, theme.compute], [1 / (1 + SPREAD / 2), theme.surface], [1, theme.waiting]],
        "zmin": 0.0,
        "zmax": 1 + SPREAD / 2,
    }


def _caption(heat: Heat, metric: str, *, ratio: bool) -> str:
    against = "relative to the median worker of the same iteration" if ratio else f"in {_unit(metric)}"
    hint = pattern(heat.values, heat.labels, heat.first) if metric in ("work", "pace") else ""
    words = f"Colour is {_SENTENCES[metric]}, {against}. {hint}".strip()
    missing = " Hatched cells have no report." if np.isnan(heat.values).any() else ""
    grouped = " Rows are grouped by machine class." if heat.classes else ""
    return f"{words}{missing}{grouped} Click a cell to open its iteration in the timeline."


def _factor(metric: str) -> float:
    return 1.0 if metric == "share" else 1000.0


def _unit(metric: str) -> str:
    return {"share": "samples", "pace": "ms per sample"}.get(metric, "ms")


def _median(values: Numbers, axis: int) -> Floats:
    """Medians of the values that exist; NaN where there are none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # "All-NaN slice": the result is NaN, as intended
        medians: Floats = np.nanmedian(values, axis=axis)
    return medians
