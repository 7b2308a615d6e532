"""Reads and writes users' saved views and pinned charts."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from django.contrib.auth.models import User
from django.urls import Resolver404, resolve

from controlplane.jobs.models import Job
from controlplane.jobs.viewing import visible
from frontend.figures import FIGURES, FigureKind
from frontend.models import SavedView
from frontend.parameters import QueryError

MOST_VIEWS: Final = 50
MOST_PINS: Final = 4
"""Maximum number of pinned charts: each is redrawn per tick."""

OWN: Final = ("ranks", "top", "smooth", "marks")
"""Parameters that a chart shares with the others of its page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One pinned chart of the overview."""

    pk: int
    name: str
    kind: FigureKind
    job: Job
    fixed: str
    """The query that it was pinned with."""
    address: str

    @property
    def axis(self) -> str:
        """Its horizontal axis."""
        return dict(parse_qsl(self.fixed)).get("x", self.kind.x[0])


def pins(user: User) -> list[Pin]:
    """The pinned charts whose jobs still exist, in the order of pinning."""
    rows = [
        (row, _job_of(row.address)) for row in SavedView.objects.filter(user=user).exclude(figure="").order_by("id")
    ]
    jobs = visible(Job.objects.all()).in_bulk({job for _, job in rows if job is not None})
    return [
        Pin(
            pk=row.pk,
            name=row.figure,
            kind=FIGURES[row.figure],
            job=jobs[job],
            fixed=_query_of(row.address, row.figure),
            address=row.address,
        )
        for row, job in rows
        if job in jobs and row.figure in FIGURES
    ][:MOST_PINS]


def save(*, user: User, name: str, address: str, figure: str = "") -> SavedView:
    """Save a page's address, or pin one of its charts.

    Raises:
        QueryError: for an address outside Paceline, an unknown figure, or too many saved views.
    """
    name = name.strip()
    if not 0 < len(name) <= 100:
        raise QueryError("name", name, "1 to 100 characters")
    if len(address) > 2000 or not _is_page(address):
        raise QueryError("address", address, "the path of a Paceline page, such as /jobs/?state=running")
    if figure and (figure not in FIGURES or not visible(Job.objects.filter(pk=_job_of(address) or 0)).exists()):
        raise QueryError("figure", figure, "a chart of a job's page")
    held = SavedView.objects.filter(user=user)
    if figure:  # otherwise a pin that the overview no longer shows could not be removed
        held.exclude(figure="").exclude(pk__in=[pin.pk for pin in pins(user)]).delete()
    held, most = (held.exclude(figure=""), MOST_PINS) if figure else (held.filter(figure=""), MOST_VIEWS)
    if held.count() >= most and not held.filter(address=address, figure=figure).exists():
        raise QueryError(
            "name", name, f"at most {most} {'pinned charts' if figure else 'saved views'}: remove one first"
        )
    row, _ = SavedView.objects.update_or_create(user=user, address=address, figure=figure, defaults={"name": name})
    return row


def _is_page(address: str) -> bool:
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    if parts.scheme or parts.netloc or not parts.path.startswith("/") or parts.path.startswith("//"):
        return False
    try:
        resolve(parts.path)
    except Resolver404:
        return False
    return not parts.path.startswith(("/api/", "/login", "/logout", "/admin"))


def _job_of(address: str) -> int | None:
    try:
        found = resolve(urlsplit(address).path)
    except Resolver404:
        return None
    return found.kwargs["job_id"] if found.url_name == "job" else None


def _query_of(address: str, figure: str) -> str:
    """The part of a page's query that applies to this chart: shared options, and its own as ``NAME-FIGURE``."""
    query = dict(parse_qsl(urlsplit(address).query))
    own = {name.removesuffix(f"-{figure}"): value for name, value in query.items() if name.endswith(f"-{figure}")}
    shared = {name: query[name] for name in OWN if name in query}
    axis = {"x": query["axis"]} if query.get("axis") in FIGURES[figure].x else {}
    return urlencode(shared | {name: value for name, value in own.items() if name != "range"} | axis)
