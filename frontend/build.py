"""From a figure's name, a job and a query string to JSON: reads, draws, and keeps the result while nothing moves.

A figure is a function of (name, job, how far ingest has come, view), and so is its entity tag: all viewers of a job
share one drawing of each tick.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from django.core.cache import cache

from controlplane.jobs.models import Job
from controlplane.telemetry.models import Cursor
from frontend.figures import FIGURES
from frontend.figures.rows import View
from frontend.figures.theme import THEMES
from frontend.queries import figures as queries

EDITION = 1
"""Raise it when figures are drawn differently, so that nobody keeps an old drawing."""

KEPT_S = 600

READERS: dict[str, Callable[[Job, View], Any]] = {
    "traces": queries.traces,
    "convergence": queries.convergence,
}


class UnknownFigure(LookupError):
    """There is no figure of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"figure {name!r}: no such figure; there are {', '.join(sorted(FIGURES))}")


class FigureQueryError(ValueError):
    """A query parameter that cannot be followed: names it, what was found, and what is allowed."""

    def __init__(self, field: str, found: object, expected: str) -> None:
        self.field, self.found, self.expected = field, found, expected
        super().__init__(f"{field}: found {found!r}, expected {expected}")


def build_figure(name: str, job: Job, query: Mapping[str, str]) -> bytes:
    """The figure as plotly JSON.

    Raises:
        UnknownFigure: naming those there are.
        FigureQueryError: naming the parameter.
    """
    view = _view(name, query)
    key = _tag(name, job, view)
    body: bytes | None = cache.get(key)
    if body is None:
        kind = FIGURES[name]
        body = msgspec.json.encode(kind.draw(READERS[kind.rows](job, view), view))
        cache.set(key, body, KEPT_S)
    return body


def figure_etag(name: str, job: Job, query: Mapping[str, str]) -> str:
    """The strong entity tag of what ``build_figure`` would give: two indexed rows are read, nothing is drawn.

    Raises:
        As ``build_figure``.
    """
    return f'"{_tag(name, job, _view(name, query))}"'


def _view(name: str, query: Mapping[str, str]) -> View:
    if name not in FIGURES:
        raise UnknownFigure(name)
    theme, axes = query.get("theme", "light"), FIGURES[name].x
    if theme not in THEMES:
        raise FigureQueryError("theme", theme, f"one of {', '.join(THEMES)}")
    x = query.get("x", axes[0])
    if x not in axes:
        raise FigureQueryError("x", x, f"one of {', '.join(axes)}")
    return View(theme=theme, x=x, ranks=_ranks(query.get("ranks", "")))


def _ranks(text: str) -> tuple[int, ...]:
    parts = [part for part in text.split(",") if part]
    if len(parts) > queries.MAX_WORKERS or not all(part.isdecimal() and len(part) < 6 for part in parts):
        raise FigureQueryError("ranks", text, f"at most {queries.MAX_WORKERS} ranks separated by commas, such as 0,3")
    return tuple(sorted({int(part) for part in parts}))


def _tag(name: str, job: Job, view: View) -> str:
    cursors = Cursor.objects.filter(job=job).order_by("stream").values_list("stream", "incarnation", "position")
    parts = (EDITION, name, job.pk, job.state, job.iteration, str(job.started_at), *cursors, view)
    return f"figure-{hashlib.blake2b(repr(parts).encode(), digest_size=12).hexdigest()}"
