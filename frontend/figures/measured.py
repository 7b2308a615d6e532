"""Draws the default charts of declared measurements: one line per worker, or per measurement of a machine."""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from controlplane.protocol.measurements import Measurement
from frontend.figures.measured_rows import Measured, MeasuredWorker, Samples
from frontend.figures.points import Numbers, budget, extremes, numbers, sampling_note, smoothed
from frontend.figures.rows import View
from frontend.figures.theme import THEMES, Theme, axis, empty, layout
from frontend.figures.workers import X_TITLES, of_all, x_of

DASHES = ("solid", "dash", "dot", "dashdot")
"""Line styles in a machine's chart: lines must not differ by colour alone."""

PREFIXED = ("s", "B", "B/s", "W", "J")
"""Units that take SI prefixes, unlike samples and degrees."""


def worker_measurement(measurement: Measurement, measured: Measured, view: View) -> dict[str, Any]:
    """A line for each worker that reports the measurement."""
    found = [(worker, worker.values[measurement.name]) for worker in measured.workers]
    lines = [(worker, values) for worker, values in found if np.isfinite(values).any()]
    if not lines:
        return empty(measurement.figure, f"Lines appear once a worker reports {measurement.title}.")
    theme, limit = THEMES[view.theme], budget(len(lines))
    points = [
        _known(x_of(worker, measured.batch, view), smoothed(values, view.smooth), limit) for worker, values in lines
    ]
    which = of_all(len(lines), measured.roster, view)
    return {
        "data": [
            _line(worker.label, x, y, theme, worker.rank, measurement, theme.dash(worker.rank))
            for (worker, _), (x, y) in zip(lines, points, strict=True)
        ],
        "layout": layout(
            theme,
            name=measurement.figure,
            caption=f"{measurement.chart} of each worker{which}: {measurement.title}. {_highest(lines, measurement)}.",
            sampling=_merged(measurement, measured, sum(len(x) for x, _ in points)),
            xaxis=axis(theme, X_TITLES[view.x]),
            yaxis=_value_axis([measurement], theme),
        ),
    }


def machine_measurement(group: Sequence[Measurement], samples: Samples, view: View) -> dict[str, Any]:
    """A line for each measurement of one chart."""
    known = [each for each in group if np.isfinite(samples.values[each.name]).any()]
    name = group[0].figure
    if not known:
        titles = ", ".join(each.title for each in group)
        return empty(name, f"Lines appear with this machine's first sample of {titles}.")
    theme, limit = THEMES[view.theme], budget(len(known))
    points = [_known(samples.at_ms, samples.values[each.name], limit) for each in known]
    return {
        "data": [
            _line(each.title.capitalize(), x, y, theme, place, each, DASHES[place % 4])
            | {"x": [_timestamp(at) for at in x.tolist()]}
            for place, (each, (x, y)) in enumerate(zip(known, points, strict=True))
        ],
        "layout": layout(
            theme,
            name=name,
            caption=f"{group[0].chart} of the machine, sampled every 10 s; in the last sample {_now(known, samples)}.",
            sampling=sampling_note(len(known) * len(samples.at_ms), sum(len(x) for x, _ in points)),
            xaxis=axis(theme, "Time (UTC)", type="date"),
            yaxis=_value_axis(known, theme),
        ),
    }


def groups(measurements: Sequence[Measurement]) -> dict[str, tuple[Measurement, ...]]:
    """Measurements grouped by their default chart's name."""
    found: dict[str, tuple[Measurement, ...]] = {}
    for each in measurements:
        if each.chart:
            found[each.figure] = (*found.get(each.figure, ()), each)
    return found


def _line(
    label: str, x: Numbers, y: Numbers, theme: Theme, place: int, measurement: Measurement, dash: str
) -> dict[str, Any]:
    shown = "%{y:.1%}" if _is_share(measurement) else f"%{{y:{_format(measurement, '.3')}}}{_suffix(measurement)}"
    return {
        "type": "scatter",
        "mode": "lines",
        "name": label,
        "x": numbers(x),
        "y": numbers(y),
        "line": {"width": 2, "color": theme.category(place), "dash": dash},
        "hovertemplate": shown,
    }


def _value_axis(measurements: Sequence[Measurement], theme: Theme) -> dict[str, Any]:
    """The axis of values in one unit; shares end at 100 %."""
    if all(_is_share(each) for each in measurements):
        return axis(theme, measurements[0].chart, tickformat=".0%", range=[0, 1.02])
    first = measurements[0]
    return axis(theme, first.chart, rangemode="tozero", tickformat=_format(first), ticksuffix=_suffix(first), nticks=6)


def _known(x: Numbers, y: Numbers, limit: int) -> tuple[Numbers, Numbers]:
    exists = np.isfinite(y)
    return extremes(x[exists], y[exists], limit)


def _highest(lines: Sequence[tuple[MeasuredWorker, Numbers]], measurement: Measurement) -> str:
    """A sentence with the highest of the workers' last values, the relevant one in most of these charts."""
    last = [(float(values[np.isfinite(values)][-1]), worker.label) for worker, values in lines]
    value, label = max(last, key=itemgetter(0))
    return f"Highest latest value: {quantity(value, measurement)} ({label})"


def quantity(value: float, measurement: Measurement) -> str:
    """The value with its unit, for display."""
    if _is_share(measurement):
        return f"{value:.0%}"
    for power, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= power:
            return f"{value / power:.3g} {prefix}{measurement.unit}".rstrip()
    if measurement.unit == "s" and value < 1:
        return f"{value * 1000:.3g} ms"
    return f"{value:.3g} {measurement.unit}".rstrip()


def _format(measurement: Measurement, digits: str = "") -> str:
    """The d3 format: with SI prefixes if the unit takes them."""
    return f"{digits}~s" if measurement.unit in PREFIXED else ",.3~r"


def _suffix(measurement: Measurement) -> str:
    return measurement.unit if measurement.unit in PREFIXED else f" {measurement.unit}".rstrip()


def _merged(measurement: Measurement, measured: Measured, drawn: int) -> str:
    if measured.width > 1 and measurement.fold == "max":
        return f"highest of every {measured.width} iterations, from {measured.reports:,} reports"
    return sampling_note(measured.reports, drawn, means=measured.width)


def _is_share(measurement: Measurement) -> bool:
    return not measurement.unit and measurement.most == 1.0


def _now(known: Sequence[Measurement], samples: Samples) -> str:
    last = [(each, samples.values[each.name][-1]) for each in known]
    parts = [f"{each.title} {quantity(value, each) if np.isfinite(value) else 'nothing'}" for each, value in last]
    return ", ".join(parts)


def _timestamp(at_ms: float) -> str:
    return str(np.datetime64(int(at_ms), "ms")).replace("T", " ")
