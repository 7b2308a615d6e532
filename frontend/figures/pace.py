"""Draws each worker's throughput and staleness over the iterations."""

from typing import Any, Final

import numpy as np

from frontend.figures.points import Numbers, budget, extremes, numbers, sampling_note, smoothed
from frontend.figures.rows import Leads, Traces, View, WorkerTrace
from frontend.figures.theme import THEMES, axis, empty, layout
from frontend.figures.workers import X_TITLES, of_all, step_line, x_of

SPEEDS: Final = {"busy": "Busy time only", "whole": "Including waiting"}
"""The time base of throughput: the worker's busy time (v in LB-BSP), or the whole iteration."""


def worker_speeds(traces: Traces, view: View) -> dict[str, Any]:
    """A line for each worker: samples per second."""
    name, whole = "worker-speed", view.metric == "whole"
    if not traces.workers:
        return empty(name, "No data yet: speeds appear after the first reported iteration.")
    theme, limit = THEMES[view.theme], budget(len(traces.workers))
    lines = [
        extremes(x_of(trace, traces.batch, view), smoothed(_speed(trace, whole=whole), view.smooth), limit)
        for trace in traces.workers
    ]
    sentence = (
        "Samples per second over whole iterations, including waiting: each worker's part of the job throughput."
        if whole
        else "Samples per second of busy time (data loading, compute and communication): the basis of share decisions."
    )
    return {
        "data": [
            {
                "type": "scatter",
                "mode": "lines",
                "name": trace.label,
                "x": numbers(x),
                "y": numbers(y.round(3)),
                "line": {"width": 2, "color": theme.category(trace.rank), "dash": theme.dash(trace.rank)},
                "hovertemplate": "%{y:.4~g} samples/s",
            }
            for trace, (x, y) in zip(traces.workers, lines, strict=True)
        ],
        "layout": layout(
            theme,
            name=f"{name}:{view.metric}",
            caption=f"{sentence}{of_all(len(traces.workers), traces.roster, view)}",
            sampling=sampling_note(traces.reports, sum(len(x) for x, _ in lines), means=traces.width),
            xaxis=axis(theme, X_TITLES[view.x]),
            yaxis=axis(theme, "Samples per second", rangemode="tozero"),
        ),
    }


def staleness(leads: Leads, view: View) -> dict[str, Any]:
    """Step lines: how many iterations each worker was ahead of the slowest when it was released."""
    name = "staleness"
    if not leads.workers:
        return empty(name, leads.reason)
    theme, limit = THEMES[view.theme], budget(len(leads.workers))
    lines = [extremes(x_of(lead, leads.batch, view), lead.ahead, limit) for lead in leads.workers]
    most = max(int(lead.ahead.max()) for lead in leads.workers)
    sentence = (
        f"Iterations by which a worker was ahead of the slowest one when it started, under {leads.barrier}: at most"
        f" {most} in the iterations shown"
        if most
        else f"Under {leads.barrier} no worker was ahead of the slowest one in the iterations shown: staleness is 0"
    )
    points = sum(len(lead.ahead) for lead in leads.workers)
    return {
        "data": [
            step_line(lead, x, y, theme, "iterations ahead") for lead, (x, y) in zip(leads.workers, lines, strict=True)
        ],
        "layout": layout(
            theme,
            name=name,
            caption=f"{sentence}{of_all(len(leads.workers), leads.roster, view)}.",
            sampling=sampling_note(points, sum(len(x) for x, _ in lines)),
            xaxis=axis(theme, X_TITLES[view.x]),
            yaxis=axis(theme, "Iterations ahead", range=[0, 1.1 * max(1, most)], dtick=max(1, -(-most // 5))),
        ),
    }


def _speed(trace: WorkerTrace, *, whole: bool) -> Numbers:
    took_s = trace.whole_s if whole else trace.busy_s
    speed: Numbers = np.divide(trace.samples, took_s, out=np.full(len(took_s), np.nan), where=took_s > 0)
    return speed
