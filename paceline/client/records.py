"""Operations on a job's recorded data: measurements, decisions, findings, figures."""

from collections.abc import Sequence
from typing import Any

from paceline.client.calls import Value, get, pages, request
from paceline.client.columns import Columns, Metrics, from_csv, library
from paceline.client.steps import Operation
from paceline.client.types import Decision, Flag

MOST_POINTS = 10_000


def metrics(
    number: int, names: str | Sequence[str], *, workers: Sequence[int] = (), since: int = 0, points: int = MOST_POINTS
) -> Operation[Metrics]:
    """Return series by name, from iteration ``since`` on, thinned to this many points each; extremes are kept."""
    metric = [names] if isinstance(names, str) else names
    return get(Metrics, f"jobs/{number}/metrics", metric=metric, worker=workers, since=since, points=points)


def measurements(number: int, *, workers: Sequence[int] = ()) -> Operation[Columns]:
    """Return every report of every worker as columns, not thinned."""
    reply = yield from request("GET", f"jobs/{number}/measurements", query={"worker": workers})
    return from_csv(reply.content.decode().split("\r\n"))


def decisions(
    number: int, *, kind: str | None = None, since: int | None = None, limit: int | None = None
) -> Operation[list[Decision]]:
    """List decisions of the engine with their reasons, newest first."""
    return pages(Decision, f"jobs/{number}/decisions", limit, kind=kind, iteration_min=since)


def flags(number: int, *, open: bool | None = None) -> Operation[list[Flag]]:
    """List findings about the job and its workers, newest first."""
    return pages(Flag, f"jobs/{number}/flags", None, open=open)


def figure_json(number: int, name: str, **options: Value) -> Operation[dict[str, Any]]:
    """Return a figure of the job's page as plotly's JSON: ``data`` and ``layout``."""
    return get(dict[str, Any], f"jobs/{number}/figures/{name}", **options)


def figure(number: int, name: str, **options: Value) -> Operation[Any]:
    """Return a figure of the job's page as a plotly ``Figure``: ``theme="dark"``, ``x="seconds"``, ``ranks="0,3"`` ...

    Raises:
        NeedsLibrary: if plotly is not installed.
    """
    graphs = library("plotly.graph_objects", "a figure")
    return graphs.Figure((yield from figure_json(number, name, **options)))


def comparison(jobs: Sequence[int], name: str, **options: Value) -> Operation[Any]:
    """Return a figure of two to six jobs side by side, as a plotly ``Figure``.

    Raises:
        NeedsLibrary: if plotly is not installed.
    """
    graphs = library("plotly.graph_objects", "a figure")
    numbers = ",".join(map(str, jobs))
    return graphs.Figure((yield from get(dict[str, Any], f"comparisons/{name}", jobs=numbers, **options)))


def report(number: int) -> Operation[str]:
    """Return the job's report as one HTML document that loads nothing from the network."""
    return (yield from request("GET", f"jobs/{number}/report")).content.decode()


def trace(number: int, *, first: int | None = None, count: int | None = None) -> Operation[dict[str, Any]]:
    """Return a few iterations in the trace event format that Perfetto opens."""
    return get(dict[str, Any], f"jobs/{number}/trace", first=first, count=count)


def model(number: int) -> Operation[bytes]:
    """Return the trained parameters as numpy's npz: ``numpy.load(io.BytesIO(...))``."""
    return (yield from request("GET", f"jobs/{number}/model")).content


def events(number: int, *, kind: str | None = None, limit: int | None = None) -> Operation[list[dict[str, Any]]]:
    """List the job's event log, newest first."""
    return pages(dict[str, Any], f"jobs/{number}/events", limit, kind=kind)
