"""Draws a few iterations of each worker as bars in time: phases, waiting, and the last arrivals."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from frontend.figures.phases import TITLES, bar_style, is_noticeable
from frontend.figures.rows import View, Window, WorkerIteration
from frontend.figures.theme import THEMES, Theme, axis, empty, layout

ROW_PX = 34
ORDER: Final = ("coordination", "waiting", "pull", "data", "compute", "push")
"""The phases of an iteration, in order."""


def timeline(window: Window, view: View) -> dict[str, Any]:
    """A row for each worker, a bar for each phase; a diamond marks the last to arrive in an iteration."""
    name = "timeline"
    if not window.spans:
        return empty(name, "No data yet: bars appear after the first reported iteration.")
    theme = THEMES[view.theme]
    spans = window.spans if is_loading(window.spans) else [_undivided(span) for span in window.spans]
    drawn = [phase for phase in ORDER if phase != "data" or spans is window.spans]
    begin = min(span.ended_s - span.whole_s for span in window.spans)
    labels = {rank: f"w{rank}" for rank in window.ranks}
    return {
        "data": [
            *(_bars(spans, phase, begin, labels, theme) for phase in drawn),
            _arrivals(window, begin, labels, theme),
        ],
        "layout": layout(
            theme,
            name=f"{name}:{window.first}:{window.last}",
            caption=_caption(window),
            meta={
                "name": name,
                "window": {"first": window.first, "last": window.last, "newest": window.newest},
                "totals": True,
            },
            height=ROW_PX * len(labels) + 120,
            hovermode="closest",
            barmode="overlay",
            bargap=0.25,
            dragmode="zoom",
            xaxis=axis(theme, "Time since the start of the window (ms)", rangemode="tozero"),
            yaxis=axis(
                theme,
                type="category",
                categoryorder="array",
                categoryarray=[labels[rank] for rank in reversed(window.ranks)],
                fixedrange=True,
                showgrid=False,
            ),
            shapes=list(_releases(window.spans, begin, theme)),
        ),
    }


def last_arrivals(spans: Sequence[WorkerIteration], uncertain_s: float = 0.0) -> dict[int, WorkerIteration]:
    """By iteration, the worker whose last push was acknowledged last: under a barrier, all others waited for it.

    Iterations whose last two are closer than ``uncertain_s`` are omitted: their order is not known.
    """
    last: dict[int, WorkerIteration] = {}
    for iteration, there in _by_iteration(spans).items():
        *others, latest = sorted(there, key=lambda span: (span.ended_s, -span.rank))
        if not others or latest.ended_s - others[-1].ended_s >= uncertain_s:
            last[iteration] = latest
    return last


def is_loading(spans: Sequence[WorkerIteration]) -> bool:
    """Whether any worker waits noticeably for its batches."""
    spent: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for span in spans:
        spent[span.rank][0] += span.data_s
        spent[span.rank][1] += span.whole_s
    return is_noticeable((data_s, whole_s) for data_s, whole_s in spent.values())


def _undivided(span: WorkerIteration) -> WorkerIteration:
    """The phases with data loading counted as part of compute."""
    return replace(span, data_s=0.0, compute_s=span.data_s + span.compute_s)


def waiting_shares(spans: Sequence[WorkerIteration]) -> tuple[float, float]:
    """Seconds of waiting of all workers, and their whole time."""
    return sum(span.waiting_s for span in spans), sum(span.whole_s for span in spans)


def chrome_trace(window: Window, job: int) -> dict[str, Any]:
    """The window in the trace event format that Perfetto and chrome://tracing open; times in microseconds."""
    names = [
        {"name": "thread_name", "ph": "M", "pid": job, "tid": rank, "args": {"name": f"w{rank}"}}
        for rank in window.ranks
    ]
    events = [
        {
            "name": TITLES[phase],
            "cat": "iteration",
            "ph": "X",
            "pid": job,
            "tid": span.rank,
            "ts": round(start * 1e6),
            "dur": round(seconds * 1e6),
            "args": {"iteration": span.iteration, "samples": span.samples},
        }
        for span in window.spans
        for phase, start, seconds in phases(span)
        if seconds > 0
    ]
    return {"traceEvents": names + events, "displayTimeUnit": "ms"}


def phases(span: WorkerIteration) -> Iterator[tuple[str, float, float]]:
    """Name, start and duration of each phase of an iteration, in seconds, in order."""
    at = span.ended_s - span.whole_s
    for phase in ORDER:
        seconds = float(getattr(span, f"{phase}_s"))
        yield phase, at, seconds
        at += seconds


def _bars(
    spans: Sequence[WorkerIteration], phase: str, begin: float, labels: dict[int, str], theme: Theme
) -> dict[str, Any]:
    parts = [(span, start, seconds) for span in spans for name, start, seconds in phases(span) if name == phase]
    return {
        "type": "bar",
        "orientation": "h",
        "name": TITLES[phase],
        "x": [round(seconds * 1000, 3) for _, _, seconds in parts],
        "base": [round((start - begin) * 1000, 3) for _, start, _ in parts],
        "y": [labels[span.rank] for span, _, _ in parts],
        "customdata": [span.iteration for span, _, _ in parts],
        "marker": bar_style(phase, theme),
        "hovertemplate": f"%{{y}}, iteration %{{customdata}}: {TITLES[phase].lower()} %{{x:.1f}} ms<extra></extra>",
        "meta": TITLES[phase],
    }


def _arrivals(window: Window, begin: float, labels: dict[int, str], theme: Theme) -> dict[str, Any]:
    last = list(last_arrivals(window.spans, window.uncertain_s).values())
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "Last to arrive",
        "x": [round((span.ended_s - begin) * 1000, 3) for span in last],
        "y": [labels[span.rank] for span in last],
        "customdata": [span.iteration for span in last],
        "marker": {"symbol": "diamond", "size": 9, "color": theme.text},
        "hovertemplate": "%{y} was the last to arrive in iteration %{customdata}<extra></extra>",
        "meta": "Last to arrive",
    }


def _releases(spans: Sequence[WorkerIteration], begin: float, theme: Theme) -> Iterator[dict[str, Any]]:
    for there in _by_iteration(spans).values():
        at = round((max(span.ended_s for span in there) - begin) * 1000, 3)
        yield {
            "type": "line",
            "yref": "paper",
            "x0": at,
            "x1": at,
            "y0": 0,
            "y1": 1,
            "line": {"color": theme.muted, "width": 1, "dash": "dot"},
            "layer": "below",
        }


def _by_iteration(spans: Sequence[WorkerIteration]) -> dict[int, list[WorkerIteration]]:
    found: dict[int, list[WorkerIteration]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: (span.iteration, span.rank)):
        found[span.iteration].append(span)
    return found


def _caption(window: Window) -> str:
    waiting, whole = waiting_shares(window.spans)
    some = "" if len(window.ranks) == window.roster else f" ({len(window.ranks)} of {window.roster} workers)"
    return (
        f"Iterations {window.first} to {window.last}{some}: {waiting:.3g} s of {whole:.3g} worker-seconds were spent"
        f" waiting ({waiting / whole if whole else 0:.0%}). {_who_came_last(window)}"
        " Dotted lines mark the end of an iteration on all workers. Bars are placed by measured durations; the offset"
        f" between rows is known to within {_ms(window.uncertain_s)}"
        f" (95% of reports arrived within {_ms(window.late_s)})."
    )


def _who_came_last(window: Window) -> str:
    arrivals = last_arrivals(window.spans, window.uncertain_s)
    iterations = len(_by_iteration(window.spans))
    if not arrivals:
        return "In every iteration the last two workers finished too close together to tell which was last."
    rank, times = max(Counter(span.rank for span in arrivals.values()).items(), key=lambda item: (item[1], -item[0]))
    close = iterations - len(arrivals)
    rest = f"; in {close} the last two were too close to tell" if close else ""
    return f"w{rank} was the last to arrive in {times} of {iterations}{rest}."


def _ms(seconds: float) -> str:
    return f"{max(1.0, seconds * 1000):.0f} ms"
