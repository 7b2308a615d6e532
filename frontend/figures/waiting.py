"""Draws the cost of waiting: every worker's time by phase, and its staleness."""

from typing import Any, Final

from frontend.figures.phases import TITLES, bar_style
from frontend.figures.rows import View, Waiting
from frontend.figures.theme import THEMES, Theme, axis, empty, layout

MOST_BARS: Final = 128
"""With more workers, single bars can no longer be distinguished, and each part of a bar is a separate SVG element:
drawing 512 workers took seconds."""

MOST_LABELS: Final = 26
"""Maximum number of labels below a band. Plotly lays out the page anew for each label, several times: it measures
whether labels overlap.
"""


def waiting_price(waiting: Waiting, view: View) -> dict[str, Any]:
    """A bar for each worker: worker-seconds by phase, waiting hatched; diamonds are its mean staleness."""
    name = "waiting-price"
    if not waiting.workers:
        return empty(name, "No data yet: bars appear after the first reported iteration.")
    theme, labels = THEMES[view.theme], [each.label for each in waiting.workers]
    ahead = [each.staleness for each in waiting.workers]
    drawn = _bar if len(labels) <= MOST_BARS else _band
    data = [drawn(phase, labels, seconds, theme) for phase, seconds in _parts(waiting).items()]
    if any(ahead):
        data.append(_staleness(labels, ahead, theme))
    return {
        "data": data,
        "layout": layout(
            theme,
            name=name,
            caption=_caption(waiting),
            barmode="stack",
            hovermode="closest",
            xaxis=axis(theme, type="category") | ({"nticks": MOST_LABELS} if len(labels) > MOST_BARS else {}),
            yaxis=axis(theme, "Worker-seconds", rangemode="tozero"),
            yaxis2=axis(theme, "Ahead (iterations)", overlaying="y", side="right", rangemode="tozero", showgrid=False),
        ),
    }


def _parts(waiting: Waiting) -> dict[str, list[float]]:
    """Seconds of every worker by phase; data loading is separate only if any worker waits noticeably for batches."""
    workers = waiting.workers
    loading = {"data": [each.data_s for each in workers]} if waiting.is_loading else {}
    return loading | {
        "compute": [each.compute_s if loading else each.data_s + each.compute_s for each in workers],
        "communication": [each.communication_s for each in workers],
        "waiting": [each.waiting_s for each in workers],
        "coordination": [each.coordination_s for each in workers],
    }


def _bar(phase: str, labels: list[str], seconds: list[float], theme: Theme) -> dict[str, Any]:
    name = TITLES[phase]
    return {
        "type": "bar",
        "name": name,
        "x": labels,
        "y": [round(each, 3) for each in seconds],
        "marker": bar_style(phase, theme),
        "hovertemplate": f"%{{x}} {name.lower()}: %{{y:.4~g}} s<extra></extra>",
        "meta": f"{name} (s)",
    }


def _band(phase: str, labels: list[str], seconds: list[float], theme: Theme) -> dict[str, Any]:
    """The outline of adjacent bars, as one shape."""
    bar = _bar(phase, labels, seconds, theme)
    style = bar.pop("marker")
    filling = {"fillpattern": style["pattern"]} if "pattern" in style else {}
    lines = {"width": 0, "shape": "hvh", "color": style["color"]}
    return (
        bar
        | {"type": "scatter", "mode": "lines", "stackgroup": "phases", "line": lines, "fillcolor": style["color"]}
        | filling
    )


def _staleness(labels: list[str], ahead: list[float | None], theme: Theme) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "Staleness, mean",
        "x": labels,
        "y": [None if each is None else round(each, 3) for each in ahead],
        "yaxis": "y2",
        "marker": {"symbol": "diamond", "size": 10, "color": theme.text},
        "hovertemplate": "%{x} was %{y:.3~g} iterations ahead of the slowest<extra></extra>",
        "meta": "Staleness, mean (iterations)",
    }


def _caption(waiting: Waiting) -> str:
    lost = (
        f"{waiting.lost_s:.4g} of {waiting.whole_s:.4g} worker-seconds were lost ({waiting.share:.0%}):"
        f" {waiting.waiting_s:.4g} to waiting, {waiting.coordination_s:.4g} to coordination"
    )
    most = max(waiting.workers, key=lambda each: (each.waiting_s, -each.rank))
    who = f"; {most.label} waited most" if most.waiting_s > waiting.waiting_s / 2 > 0 else ""
    again = f"; {waiting.again_s:.4g} of waiting was in repeated iterations" if waiting.again_s else ""
    if waiting.staleness is None:
        return f"{lost}{who}{again}."
    return (
        f"{lost}{who}{again}. Under {waiting.barrier}, workers started {waiting.staleness:.2g} iterations ahead of"
        f" the slowest on average, over the last {waiting.recent} iterations."
    )
