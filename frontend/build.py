"""Builds the JSON of a figure from its name, jobs and query string, and caches it until the data changes.

A figure and its entity tag depend only on its name, its jobs, the ingest position and the view: all viewers of a job
share one drawing per tick.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from controlplane.fleet.models import Agent
from controlplane.jobs.models import Job
from controlplane.jobs.viewing import visible
from controlplane.protocol.parts import MAX_ITERATIONS
from controlplane.telemetry.logged import logged_series
from controlplane.telemetry.models import Simulation
from frontend.figures import COMPARISONS, FIGURES, MACHINES, SIMULATIONS, FigureKind
from frontend.figures.marks import marked
from frontend.figures.rows import Traces, View
from frontend.figures.theme import THEMES
from frontend.figures.timeline import chrome_trace
from frontend.figures.verbatim import verbatim
from frontend.parameters import Query, QueryError, numbers, one_of, part, positive, whole
from frontend.queries import (
    comparison,
    effects,
    heat,
    machine,
    measured,
    placement,
    simulations,
    staleness,
    timeline,
    topology,
    waiting,
    whatif,
)
from frontend.queries import figures as queries
from frontend.queries.cache import kept, key_of, latest_of_job, of_job, state_key
from frontend.queries.marks import marks

EDITION = 13
"""Increase it when figures are drawn differently, to invalidate cached drawings."""

KEPT_S = 600
MAX_SMOOTH = 200
"""Maximum number of neighbouring values averaged into one."""


def _traces(job: Job, view: View) -> Traces:
    """The default workers' reports are shared by all charts of a tick; other choices are large and rarely shared."""
    if view.ranks or view.top:
        return queries.traces(job, view)
    return latest_of_job("traces", job, lambda job: queries.traces(job, view))


READERS: dict[str, Callable[[Job, View], Any]] = {
    "traces": _traces,
    "convergence": queries.convergence,
    "leads": staleness.leads,
    "heat": heat.heat,
    "placement": placement.placements,
    "window": timeline.window,
    "waiting": lambda job, view: waiting.accounts(job)[0],
    "others": whatif.others,
    "predictions": effects.predictions,
    "predictors": whatif.predictors,
    "measured": measured.measured,
    "topology": topology.topology,
    "logged": lambda job, view: logged_series(job.pk),
}

MACHINE_READERS: dict[str, Callable[[Agent], Any]] = {
    "speeds": machine.speeds,
    "load": machine.load,
    "samples": measured.samples,
}


class UnknownFigure(LookupError):
    """There is no figure with this name."""

    def __init__(self, name: str, kinds: Mapping[str, FigureKind]) -> None:
        super().__init__(f"figure {name!r}: no such figure; there are {', '.join(sorted(kinds))}")


def build_figure(name: str, job: Job, query: Query) -> bytes:
    """The figure as plotly JSON.

    Raises:
        UnknownFigure: with the existing names.
        QueryError: naming the parameter.
    """
    view = _view(FIGURES, name, query)
    kind = FIGURES[name]
    return _kept(_tag(name, [job], view), lambda: _drawn(kind, job, view))


def _drawn(kind: FigureKind, job: Job, view: View) -> dict[str, Any]:
    figure = kind.draw(READERS[kind.rows](job, view), view)
    return marked(figure, of_job("marks", job, marks), view) if kind.marked and view.marks == "on" else figure


def build_comparison(name: str, query: Query) -> bytes:
    """A figure of the jobs listed in ``jobs`` of ``query``, as plotly JSON.

    Raises:
        As ``build_figure``.
    """
    view, jobs = _view(COMPARISONS, name, query), compared_jobs(query.get("jobs", ""))
    return _kept(_tag(name, jobs, view), lambda: COMPARISONS[name].draw(comparison.compared(jobs, view), view))


def build_machine(name: str, agent: Agent, query: Query) -> bytes:
    """A figure of one machine, as plotly JSON.

    Raises:
        As ``build_figure``.
    """
    view = _view(MACHINES, name, query)
    kind = MACHINES[name]
    return _kept(_machine_tag(name, agent, view), lambda: kind.draw(MACHINE_READERS[kind.rows](agent), view))


def machine_etag(name: str, agent: Agent, query: Query) -> str:
    """The strong entity tag of the result of ``build_machine``.

    Raises:
        As ``build_figure``.
    """
    return f'"{_machine_tag(name, agent, _view(MACHINES, name, query))}"'


def build_simulation(name: str, row: Simulation, query: Query) -> bytes:
    """A figure of one simulation, as plotly JSON.

    Raises:
        As ``build_figure``.
    """
    view = _view(SIMULATIONS, name, query)
    return _kept(_simulation_tag(name, row, view), lambda: SIMULATIONS[name].draw(simulations.simulated(row), view))


def simulation_etag(name: str, row: Simulation, query: Query) -> str:
    """The strong entity tag of the result of ``build_simulation``.

    Raises:
        As ``build_figure``.
    """
    return f'"{_simulation_tag(name, row, _view(SIMULATIONS, name, query))}"'


def build_trace(job: Job, query: Query) -> bytes:
    """The timeline's window as a trace, as JSON.

    Raises:
        QueryError: naming the parameter.
    """
    return msgspec.json.encode(chrome_trace(timeline.window(job, _view(FIGURES, "timeline", query)), job.pk))


def figure_etag(name: str, job: Job, query: Query) -> str:
    """The strong entity tag of the result of ``build_figure``: reads two indexed rows and draws nothing.

    Raises:
        As ``build_figure``.
    """
    return f'"{_tag(name, [job], _view(FIGURES, name, query))}"'


def comparison_etag(name: str, query: Query) -> str:
    """The strong entity tag of the result of ``build_comparison``."""
    jobs = compared_jobs(query.get("jobs", ""))
    return f'"{_tag(name, jobs, _view(COMPARISONS, name, query))}"'


def compared_jobs(text: str) -> list[Job]:
    """The jobs of a comparison, in the given order.

    Raises:
        QueryError: unless these are 2 to 6 existing jobs.
    """
    least, most = comparison.LEAST, comparison.MOST
    expected = f"{least} to {most} job IDs separated by commas, such as 3,5"
    requested = numbers({"jobs": text}, "jobs", expected, least=least, most=most)
    found = visible(Job.objects.all()).in_bulk(requested)
    if missing := [pk for pk in requested if pk not in found]:
        raise QueryError("jobs", ", ".join(map(str, missing)), "existing jobs")
    return [found[pk] for pk in requested]


def _kept(key: str, draw: Callable[[], Any]) -> bytes:
    return kept(key, lambda: msgspec.json.encode(verbatim(draw())), KEPT_S)


def _view(kinds: Mapping[str, FigureKind], name: str, query: Query) -> View:
    if name not in kinds:
        raise UnknownFigure(name, kinds)
    kind = kinds[name]
    picked: dict[str, Any] = {option.name: one_of(query, option.name, option.values) for option in kind.options}
    if kind.windowed:
        picked["first"] = whole(query, "first", 0, MAX_ITERATIONS)
        picked["count"] = whole(query, "count", 1, timeline.MAX_ITERATIONS) or 0
    picked |= {entry.name: _ENTERED[entry.name](query, entry.name) for entry in kind.entries}
    most = queries.MAX_WORKERS
    ranks = numbers(query, "ranks", f"at most {most} ranks separated by commas, such as 0,3", most=most, digits=5)
    return View(
        theme=one_of(query, "theme", THEMES),
        x=one_of(query, "x", kind.x),
        ranks=tuple(sorted(ranks)),
        marks=one_of(query, "marks", ("on", "off")),
        smooth=whole(query, "smooth", 0, MAX_SMOOTH) or 0,
        top=whole(query, "top", 0, most) or 0,
        **picked,
    )


_ENTERED: dict[str, Callable[[Query, str], float | None]] = {
    "accuracy": part,
    "loss": partial(positive, expected="a number above 0, such as 0.2", most=1e9),
}


def _machine_tag(name: str, agent: Agent, view: View) -> str:
    return key_of("machine", EDITION, name, agent.pk, machine.moved(agent), view)


def _simulation_tag(name: str, row: Simulation, view: View) -> str:
    return key_of("simulation", EDITION, name, row.pk, row.done, view)


def _tag(name: str, jobs: Sequence[Job], view: View) -> str:
    made = whatif.made_at(jobs) if name in {"others", "machine-changes"} else ()
    return key_of("figure", EDITION, name, made, state_key(jobs), view)
