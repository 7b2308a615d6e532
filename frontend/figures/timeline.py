"""A few iterations of each worker as bars in time: its phases, what it waited for, and which one arrived last."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from frontend.figures.phases import TITLES, bar_style, is_noticeable
from frontend.figures.rows import Stay, View, Window
from frontend.figures.theme import THEMES, Theme, axis, empty, layout

ROW_PX = 34
ORDER: Final = ("coordination", "waiting", "pull", "data", "compute", "push")
"""One iteration of a worker, by phases."""


def timeline(window: Window, view: View) -> dict[str, Any]:
    """A row for each worker, a bar for each phase; a diamond marks the last to arrive in an iteration."""
    name = "timeline"
    if not window.stays:
        return empty(name, "No data yet: bars appear after the first reported iteration.")
    theme = THEMES[view.theme]
    stays = window.stays if is_loading(window.stays) else [_undivided(stay) for stay in window.stays]
    drawn = [phase for phase in ORDER if phase != "data" or stays is window.stays]
    begin = min(stay.ended_s - stay.whole_s for stay in window.stays)
    labels = {rank: f"w{rank}" for rank in window.ranks}
    return {
        "data": [
            *(_bars(stays, phase, begin, labels, theme) for phase in drawn),
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
            shapes=list(_releases(window.stays, begin, theme)),
        ),
    }


def last_arrivals(stays: Sequence[Stay], uncertain_s: float = 0.0) -> dict[int, Stay]:
    """By iteration, the worker whose last push was acknowledged last: under a barrier, all others waited for it.

    An iteration whose last two are closer than ``uncertain_s`` is left out: which of them came last is not known.
    """
    last: dict[int, Stay] = {}
    for iteration, there in _by_iteration(stays).items():
        *others, latest = sorted(there, key=lambda stay: (stay.ended_s, -stay.rank))
        if not others or latest.ended_s - others[-1].ended_s >= uncertain_s:
            last[iteration] = latest
    return last


def is_loading(stays: Sequence[Stay]) -> bool:
    """Whether some worker waits noticeably for its batches."""
    spent: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for stay in stays:
        spent[stay.rank][0] += stay.data_s
        spent[stay.rank][1] += stay.whole_s
    return is_noticeable((data_s, whole_s) for data_s, whole_s in spent.values())


def _undivided(stay: Stay) -> Stay:
    """The phases with data loading counted as part of compute."""
    return replace(stay, data_s=0.0, compute_s=stay.data_s + stay.compute_s)


def waiting_shares(stays: Sequence[Stay]) -> tuple[float, float]:
    """Seconds of waiting of all workers, and their whole time."""
    return sum(stay.waiting_s for stay in stays), sum(stay.whole_s for stay in stays)


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
            "tid": stay.rank,
            "ts": round(start * 1e6),
            "dur": round(seconds * 1e6),
            "args": {"iteration": stay.iteration, "samples": stay.samples},
        }
        for stay in window.stays
        for phase, start, seconds in phases(stay)
        if seconds > 0
    ]
    return {"traceEvents": names + events, "displayTimeUnit": "ms"}


def phases(stay: Stay) -> Iterator[tuple[str, float, float]]:
    """Name, beginning and length of each phase of one iteration, in seconds, in order."""
    at = stay.ended_s - stay.whole_s
    for phase in ORDER:
        seconds = float(getattr(stay, f"{phase}_s"))
        yield phase, at, seconds
        at += seconds


def _bars(stays: Sequence[Stay], phase: str, begin: float, labels: dict[int, str], theme: Theme) -> dict[str, Any]:
    parts = [(stay, start, seconds) for stay in stays for name, start, seconds in phases(stay) if name == phase]
    return {
        "type": "bar",
        "orientation": "h",
        "name": TITLES[phase],
        "x": [round(seconds * 1000, 3) for _, _, seconds in parts],
        "base": [round((start - begin) * 1000, 3) for _, start, _ in parts],
        "y": [labels[stay.rank] for stay, _, _ in parts],
        "customdata": [stay.iteration for stay, _, _ in parts],
        "marker": bar_style(phase, theme),
        "hovertemplate": f"%{{y}}, iteration %{{customdata}}: {TITLES[phase].lower()} %{{x:.1f}} ms<extra></extra>",
        "meta": TITLES[phase],
    }


def _arrivals(window: Window, begin: float, labels: dict[int, str], theme: Theme) -> dict[str, Any]:
    last = list(last_arrivals(window.stays, window.uncertain_s).values())
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "Last to arrive",
        "x": [round((stay.ended_s - begin) * 1000, 3) for stay in last],
        "y": [labels[stay.rank] for stay in last],
        "customdata": [stay.iteration for stay in last],
        "marker": {"symbol": "diamond", "size": 9, "color": theme.text},
        "hovertemplate": "%{y} was the last to arrive in iteration %{customdata}<extra></extra>",
        "meta": "Last to arrive",
    }


def _releases(stays: Sequence[Stay], begin: float, theme: Theme) -> Iterator[dict[str, Any]]:
    for there in _by_iteration(stays).values():
        at = round((max(stay.ended_s for stay in there) - begin) * 1000, 3)
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


def _by_iteration(stays: Sequence[Stay]) -> dict[int, list[Stay]]:
    found: dict[int, list[Stay]] = defaultdict(list)
    for stay in sorted(stays, key=lambda stay: (stay.iteration, stay.rank)):
        found[stay.iteration].append(stay)
    return found


def _caption(window: Window) -> str:
    waiting, whole = waiting_shares(window.stays)
    some = "" if len(window.ranks) == window.roster else f" ({len(window.ranks)} of {window.roster} workers)"
    return (
        f"Iterations {window.first} to {window.last}{some}: {waiting:.3g} s of {whole:.3g} worker-seconds were spent"
        f" waiting ({waiting / whole if whole else 0:.0%}). {_who_came_last(window)}"
        " Dotted lines mark the end of an iteration on all workers. Bars are placed by measured durations; the offset"
        f" between rows is known to within {_ms(window.uncertain_s)}"
        f" (95% of reports arrived within {_ms(window.late_s)})."
    )


def _who_came_last(window: Window) -> str:
    arrivals = last_arrivals(window.stays, window.uncertain_s)
    iterations = len(_by_iteration(window.stays))
    if not arrivals:
        return "In every iteration the last two workers finished too close together to tell which was last."
    rank, times = max(Counter(stay.rank for stay in arrivals.values()).items(), key=lambda item: (item[1], -item[0]))
    close = iterations - len(arrivals)
    rest = f"; in {close} the last two were too close to tell" if close else ""
    return f"w{rank} was the last to arrive in {times} of {iterations}{rest}."


def _ms(seconds: float) -> str:
    return f"{max(1.0, seconds * 1000):.0f} ms"
