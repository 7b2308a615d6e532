"""Draws one machine: its speed at each batch size, and its load."""

from typing import Any

import numpy as np

from frontend.figures.points import budget, extremes, numbers, sampling_note
from frontend.figures.rows import Load, Speeds, View
from frontend.figures.theme import THEMES, axis, empty, layout
from frontend.figures.verbatim import untouched


def speed_by_batch(speeds: Speeds, view: View) -> dict[str, Any]:
    """A marker for each batch size of workers on this machine: samples per second of busy time, coloured by job."""
    name = "speed-by-batch"
    if not speeds.series:
        return empty(name, "No data yet: points appear after a worker on this machine has reported iterations.")
    theme = THEMES[view.theme]
    return {
        "data": [
            {
                "type": "scatter",
                "mode": "markers",
                "name": each.label,
                "x": numbers(each.batch),
                "y": numbers(each.samples_per_second.round(3)),
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": numbers((each.high - each.samples_per_second).round(3)),
                    "arrayminus": numbers((each.samples_per_second - each.low).round(3)),
                    "thickness": 1,
                    "width": 3,
                },
                "marker": {"color": theme.category(place), "size": 9, "symbol": place},
                "hovertemplate": f"{untouched(each.label)}, batch %{{x}}: %{{y:.4~g}} samples/s<extra></extra>",
            }
            for place, each in enumerate(speeds.series)
        ],
        "layout": layout(
            theme,
            name=name,
            caption=_speeds_sentence(speeds),
            hovermode="closest",
            xaxis=axis(theme, "Batch size (samples per iteration)", rangemode="tozero"),
            yaxis=axis(theme, "Samples/s while busy", rangemode="tozero"),
            showlegend=True,
        ),
    }


def machine_load(load: Load, view: View) -> dict[str, Any]:
    """CPU and memory utilization over time."""
    name = "load"
    if not len(load.at_ms):
        return empty(name, "No data yet: lines appear with the first load sample, 10 s after the machine has joined.")
    theme, limit = THEMES[view.theme], budget(2)
    lines = [extremes(load.at_ms, values, limit) for values in (load.cpu, load.memory)]
    drawn = sum(len(x) for x, _ in lines)
    return {
        "data": [
            {
                "type": "scatter",
                "mode": "lines",
                "name": title,
                "x": [_timestamp(at) for at in x.tolist()],
                "y": numbers(y),
                "line": {"color": theme.category(place), "dash": ("solid", "dash")[place], "width": 2},
                "hovertemplate": "%{y:.0%}",
            }
            for place, (title, (x, y)) in enumerate(zip(("CPU", "Memory"), lines, strict=True))
        ],
        "layout": layout(
            theme,
            name=name,
            caption=f"CPU and memory use, sampled every 10 s. Latest sample: CPU {load.cpu[-1]:.0%}, memory"
            f" {load.memory[-1]:.0%}.",
            sampling=sampling_note(2 * len(load.at_ms), drawn),
            xaxis=axis(theme, "Time (UTC)", type="date"),
            yaxis=axis(theme, "Utilization", tickformat=".0%", range=[0, 1.02]),
        ),
    }


def _timestamp(at_ms: float) -> str:
    return str(np.datetime64(int(at_ms), "ms")).replace("T", " ")


def _speeds_sentence(speeds: Speeds) -> str:
    fastest = max(speeds.series, key=lambda each: float(each.samples_per_second.max()))
    return (
        f"Throughput by batch size: medians and quartiles of {speeds.reports:,} iterations. Where the curve is"
        " flat, time is proportional to the batch size."
        f" Best: {fastest.samples_per_second.max():.4g} samples/s, by {fastest.label}."
    )
