"""Draws each worker's batch size and iteration phases over the iterations."""

from typing import Any

import numpy as np

from frontend.figures.measured_rows import MeasuredWorker
from frontend.figures.phases import PATTERNS, TITLES, colour_of, hatch, is_noticeable
from frontend.figures.points import Numbers, budget, extremes, mean_of_each, merged, numbers, sampling_note, smoothed
from frontend.figures.rows import Lead, Traces, View, WorkerTrace
from frontend.figures.theme import THEMES, Theme, axis, empty, faded, layout
from frontend.figures.verbatim import untouched

X_TITLES = {"iteration": "Iteration", "time": "Time since start (s)", "samples": "Samples processed"}
STRIP_PX = 84
"""Height of one worker's strip."""

AROUND_PX = 140
"""Space for the axis below, and for a legend above that has four lines in a narrow window."""

HEADROOM = 1.1
"""Factor by which the axis exceeds the longest sustained iteration."""

TOLERANCE = 0.10
"""Relative deviation of busy times from the median worker's within which shares count as balanced."""

RECENT = 20
"""Number of last entries over which the tolerance band is measured."""

PHASES = ("compute", "communication", "waiting", "coordination")


def batch_sizes(traces: Traces, view: View) -> dict[str, Any]:
    """Step lines: the samples of each worker in each iteration."""
    name = "batch-size"
    if not traces.workers:
        return empty(name, "No data yet: batch sizes appear after the first reported iteration.")
    theme, limit = THEMES[view.theme], budget(len(traces.workers))
    lines = [_steps(trace, traces, limit, view) for trace in traces.workers]
    drawn = sum(len(x) for x, _ in lines)
    which = of_all(len(traces.workers), traces.roster, view)
    caption = f"Samples per worker and iteration{which}. Their sum, the global batch, is constant."
    return {
        "data": [step_line(trace, x, y, theme, "samples") for trace, (x, y) in zip(traces.workers, lines, strict=True)],
        "layout": layout(
            theme,
            name=name,
            caption=caption,
            sampling=sampling_note(traces.reports, drawn),
            xaxis=axis(theme, X_TITLES[view.x]),
            yaxis=axis(theme, "Samples per iteration", rangemode="tozero"),
        ),
    }


def iteration_times(traces: Traces, view: View) -> dict[str, Any]:
    """A strip per worker on a common scale: stacked phases, waiting hatched."""
    name = "iteration-time"
    if not traces.workers:
        return empty(name, "No data yet: iteration times appear after the first reported iteration.")
    theme, count = THEMES[view.theme], len(traces.workers)
    every = max(1, -(-max(len(trace.iteration) for trace in traces.workers) // (budget(len(PHASES) * count) // 2)))
    top, highest = _scale(traces)
    caption = (
        f"Time of each worker by phase{of_all(len(traces.workers), traces.roster, view)}, on one scale."
        " Hatched: waiting for the slowest worker. Grey: coordination (waiting for the control plane)."
        f"{' Crosshatched: data loading (waiting for the next batch).' if _is_loading(traces) else ''}"
        f"{_tolerated(traces)}"
    ) + (f" Single spikes of up to {highest:.0f} ms exceed the scale." if highest > top else "")
    return {
        "data": [
            area for row, trace in enumerate(traces.workers) for area in _strip(trace, row, traces, every, view, theme)
        ],
        "layout": layout(
            theme,
            name=name,
            caption=caption,
            sampling=sampling_note(traces.reports, traces.reports, means=every * traces.width),
            height=STRIP_PX * count + AROUND_PX,
            shapes=_bands(traces, theme),
            **_strip_axes(traces, top, view, theme),
        ),
    }


def _steps(trace: WorkerTrace, traces: Traces, limit: int, view: View) -> tuple[Numbers, Numbers]:
    x = x_of(trace, traces.batch, view)
    if traces.width > 1:
        x = np.repeat(x, 2)
        y = np.stack([trace.lowest, trace.highest], axis=1).reshape(-1)
    else:
        y = trace.highest
    return extremes(x, y, limit)


def step_line(trace: WorkerTrace | Lead, x: Numbers, y: Numbers, theme: Theme, unit: str) -> dict[str, Any]:
    """A line in the worker's colour, level from one point to the next."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": trace.label,
        "x": numbers(x),
        "y": numbers(y),
        "line": {"shape": "hv", "width": 2, "color": theme.category(trace.rank), "dash": theme.dash(trace.rank)},
        "hovertemplate": f"%{{y:.4~g}} {unit}",
    }


def _strip(trace: WorkerTrace, row: int, traces: Traces, every: int, view: View, theme: Theme) -> list[dict[str, Any]]:
    x = merged(x_of(trace, traces.batch, view), every, np.minimum)
    parts = {phase: getattr(trace, f"{phase}_s") for phase in PHASES}
    if trace.data_s is not None and _is_loading(traces):
        parts = {"data": trace.data_s} | parts | {"compute": trace.compute_s - trace.data_s}
    means = {phase: mean_of_each(seconds, every) for phase, seconds in parts.items()}
    times = {phase: smoothed(seconds, view.smooth) for phase, seconds in means.items()}
    return [_area(trace, phase, x, seconds, row, theme) for phase, seconds in times.items()]


def _area(trace: WorkerTrace, phase: str, x: Numbers, seconds: Numbers, row: int, theme: Theme) -> dict[str, Any]:
    suffix = str(row + 1) if row else ""
    colour = colour_of(phase, theme)
    fill = {"fillpattern": hatch(colour, PATTERNS[phase])} if phase in PATTERNS else {"fillcolor": colour}
    return {
        "type": "scatter",
        "mode": "lines",
        "name": TITLES[phase],
        "legendgroup": phase,
        "showlegend": row == 0,
        "x": numbers(x),
        "y": numbers(seconds * 1000),
        "xaxis": "x",
        "yaxis": f"y{suffix}",
        "stackgroup": trace.label,
        "line": {"width": 0, "shape": "hv", "color": colour},
        "hovertemplate": f"{untouched(trace.label)} %{{y:.1f}} ms",
        "meta": f"{trace.label} {phase} (ms)",
        **fill,
    }


def _is_loading(traces: Traces) -> bool:
    """Whether some worker waits noticeably for its batches."""
    return is_noticeable(
        (float(each.data_s.sum()), float(np.nansum(each.whole_s))) for each in traces.workers if each.data_s is not None
    )


def _scale(traces: Traces) -> tuple[float, float]:
    """The upper end of the strips' axis, and the longest iteration, in milliseconds.

    A stall of a single iteration would flatten all other iterations, so the axis ends at the largest running median of
    three: any stall of at least two iterations is shown completely.
    """
    lengths = [trace.whole_s * 1000 for trace in traces.workers]
    highest = max(float(np.max(each, initial=0.0)) for each in lengths)
    medians = [_median_of_three(each) for each in lengths if len(each) >= 3]
    lasting = max((float(np.max(each)) for each in medians), default=highest)
    return min(highest, lasting * HEADROOM) or 1.0, highest


def _median_of_three(values: Numbers) -> Numbers:
    middle: Numbers = np.median(np.stack([values[:-2], values[1:-1], values[2:]]), axis=0)
    return middle


def _band_s(traces: Traces) -> float | None:
    """The median of the workers' recent busy times; None for a single worker."""
    own = [float(np.mean(trace.busy_s[-RECENT:])) for trace in traces.workers if len(trace.busy_s)]
    return float(np.median(own)) if len(own) > 1 else None


def _bands(traces: Traces, theme: Theme) -> list[dict[str, Any]]:
    """The tolerance around the median worker, across every strip."""
    middle = _band_s(traces)
    if middle is None:
        return []
    return [
        {
            "type": "rect",
            "xref": "paper",
            "yref": f"y{row + 1 if row else ''}",
            "x0": 0,
            "x1": 1,
            "y0": round(middle * 1000 * (1 - TOLERANCE), 3),
            "y1": round(middle * 1000 * (1 + TOLERANCE), 3),
            "fillcolor": faded(theme.text, 0.15),
            "line": {"width": 1, "color": theme.text, "dash": "dot"},
        }
        for row in range(len(traces.workers))
    ]


def _tolerated(traces: Traces) -> str:
    middle = _band_s(traces)
    if middle is None:
        return ""
    return (
        f" The band is the recent busy time of the median worker, {middle * 1000:.0f} ms ± {TOLERANCE:.0%}: shares are"
        " balanced where all workers' busy times lie within it."
    )


def _strip_axes(traces: Traces, top: float, view: View, theme: Theme) -> dict[str, Any]:
    """One x axis under all strips, and a y axis per strip, the same range for all."""
    count = len(traces.workers)
    axes: dict[str, Any] = {
        "xaxis": axis(theme, X_TITLES[view.x], anchor=f"y{count}" if count > 1 else "y"),
        "annotations": [],
    }
    for row, trace in enumerate(traces.workers):
        low = 1 - (row + 1) / count
        axes[f"yaxis{row + 1 if row else ''}"] = axis(
            theme,
            "ms",
            domain=[low, low + 0.8 / count],
            range=[0, top],
            nticks=3,
            fixedrange=True,
        )
        axes["annotations"].append(_strip_name(trace.label, low + 0.8 / count, theme))
    return axes


def _strip_name(label: str, y: float, theme: Theme) -> dict[str, Any]:
    return {
        "text": label,
        "xref": "paper",
        "yref": "paper",
        "x": 0,
        "y": y,
        "xanchor": "left",
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"color": theme.text, "size": 12},
    }


def x_of(trace: WorkerTrace | MeasuredWorker | Lead, batch: int, view: View) -> Numbers:
    """The x positions of the entries; samples count the whole iterations before them."""
    if view.x == "samples":
        return trace.iteration * batch
    return trace.elapsed_s if view.x == "time" else trace.iteration


def of_all(shown: int, roster: int, view: View) -> str:
    """Which workers are shown, as text; empty if all are."""
    which = "selected" if view.ranks else "slowest" if view.top else "slowest and fastest"
    return "" if shown == roster else f" ({shown} of {roster} workers: {which})"
