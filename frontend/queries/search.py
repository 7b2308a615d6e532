"""Searches jobs, machines, simulations, notes, pages and terms; the newest of each kind, the job with that ID first."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from django.contrib.auth.models import User
from django.db.models import Q
from django.urls import reverse

from controlplane.fleet.models import Agent
from controlplane.jobs.viewing import visible
from controlplane.telemetry.models import Simulation
from frontend.glossary import by_name
from frontend.models import JobNote, SavedView
from frontend.queries.jobs import matching

EACH: Final = 5
"""Maximum number of matches of each kind."""

LONGEST: Final = 100

PAGES: Final = {
    "overview": "Overview",
    "jobs": "Jobs",
    "parameters": "Runs and parameters",
    "submit": "Submit a job",
    "simulations": "Simulations",
    "comparison": "Compare jobs",
    "machines": "Machines",
    "alerts": "Alerts",
    "waiting": "Cost of waiting",
    "system": "System health",
    "queue": "Queue",
    "teams": "Teams and quotas",
    "audit": "Audit",
    "account": "Tokens and sessions",
    "glossary": "Glossary",
}
"""Titles by URL name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """One match: its kind, its name, and its link."""

    kind: str
    title: str
    about: str
    address: str
    saved: int | None = None
    """The ID of a saved view, which the user can delete."""


def search(text: str, user: User) -> list[Match]:
    """All matches; for an empty text, the user's saved views."""
    sought = text.strip()[:LONGEST]
    if not sought:
        return list(_views(user, ""))
    return [
        *_views(user, sought),
        *_jobs(sought),
        *_machines(sought),
        *_notes(sought),
        *_simulations(sought),
        *_pages(sought),
        *_terms(sought),
    ]


def _views(user: User, sought: str) -> Iterable[Match]:
    for row in SavedView.objects.filter(user=user, figure="", name__icontains=sought).order_by("-id")[: 2 * EACH]:
        yield Match(kind="saved view", title=row.name, about="", address=row.address, saved=row.pk)


def _jobs(sought: str) -> Iterable[Match]:
    number = sought.removeprefix("#")
    found = (matching(search=number if number.isdecimal() else sought) | matching(tag=sought)).distinct()
    exact = list(found.filter(pk=int(number))) if number.isdecimal() else []
    for job in (exact + [job for job in found[: EACH + 1] if job not in exact])[:EACH]:
        address = reverse("job", args=[job.pk])
        yield Match(kind="job", title=f"{job.name} #{job.pk}", about=job.state, address=address)


def _machines(sought: str) -> Iterable[Match]:
    machines = visible(Agent.objects.filter(Q(name__icontains=sought) | Q(host__icontains=sought)))
    for agent in machines.order_by("name")[:EACH]:
        yield Match(kind="machine", title=agent.name, about=agent.state, address=reverse("machine", args=[agent.pk]))


def _notes(sought: str) -> Iterable[Match]:
    notes = visible(JobNote.objects.filter(text__icontains=sought), "job__team")
    for note in notes.select_related("job").order_by("-id")[:EACH]:
        address = f"{reverse('job', args=[note.job_id])}#note-{note.pk}"
        yield Match(kind="note", title=note.text[:80], about=f"{note.job.name} #{note.job_id}", address=address)


def _simulations(sought: str) -> Iterable[Match]:
    for row in visible(Simulation.objects.filter(scenario__icontains=sought)).order_by("-id")[:EACH]:
        address = reverse("simulation", args=[row.pk])
        yield Match(kind="simulation", title=f"{row.scenario} #{row.pk}", about=row.state, address=address)


def _pages(sought: str) -> Iterable[Match]:
    for name, title in PAGES.items():
        if sought.lower() in title.lower():
            yield Match(kind="page", title=title, about="", address=reverse(name))


def _terms(sought: str) -> Iterable[Match]:
    terms = [term for term in by_name().values() if sought.lower() in term.name.lower()]
    for term in sorted(dict.fromkeys(terms), key=lambda term: term.name)[:EACH]:
        yield Match(
            kind="term", title=term.name, about=term.meaning[:120], address=f"{reverse('glossary')}#{term.anchor}"
        )
