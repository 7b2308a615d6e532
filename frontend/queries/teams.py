"""Reads teams and quotas: what each team owns, its share of the slots, and the use of each limit."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from django.contrib.auth.models import User
from django.core.paginator import Page, Paginator

from controlplane.api.views.teams import visible_teams
from controlplane.fleet.models import Agent
from controlplane.fleet.selectors import SlotsNow, slots_now
from controlplane.jobs.models import Job
from controlplane.jobs.roles import Role, may
from controlplane.jobs.shares import team_shares
from controlplane.people import quotas
from controlplane.people.models import Membership, Team
from controlplane.people.quotas import RESOURCES, QuotaUsage
from controlplane.people.teams import owned_by
from controlplane.scheduling.fair_share import Share
from controlplane.telemetry.models import Simulation
from frontend import formats

PER_PAGE: Final = 25
SHOWN: Final = 25
"""Maximum number of jobs and simulations on a team's page, the newest."""

MOST_OFFERED: Final = 500
"""Maximum number of selectable machines."""

TITLES: Final = {
    "slots": "Slots",
    "jobs": "Jobs",
    "workers": "Workers",
    "simulations": "Simulations",
    "stored_bytes": "Stored models",
}
LONG: Final = 10
"""Characters of a size that was not set in a round number."""

NEAR: Final = 0.9
"""Fraction of use above which a limit is shown as nearly reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """The use of one resource."""

    name: str
    title: str
    about: str
    used: int
    limit: int | None

    @property
    def text(self) -> str:
        """``3 of 8``; without a limit, the use only."""
        used = shown(self.name, self.used)
        return used if self.limit is None else f"{used} of {shown_limit(self.name, self.limit)}"

    @property
    def level(self) -> str:
        """``over``, ``full``, ``near`` or empty."""
        if self.limit is None:
            return ""
        if self.used >= self.limit:
            return "over" if self.used > self.limit else "full"
        return "near" if self.used >= NEAR * self.limit else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limited:
    """A user, a team or the default, with its meters and the URL of its limits."""

    subject: str
    meters: list[Meter]
    limits: dict[str, int | None]
    url: str

    @property
    def fields(self) -> dict[str, int | str | None]:
        """What the form of its limits is filled with."""
        return limit_fields(self.limits)

    @property
    def name(self) -> str:
        """The user's or the team's name."""
        return self.subject.partition(" ")[2]

    @property
    def has_limits(self) -> bool:
        """Whether any is set."""
        return any(limit is not None for limit in self.limits.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class FairShare:
    """A team's share of the slots, by weight and by recent use."""

    weight: float
    used: float
    """Slot-seconds, decayed."""
    due: float
    had: float
    """Fair share and recent use, as fractions of all teams'."""
    place: int
    of: int
    """Its position when several teams wait: 1 gets the next slots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamLine:
    """A team in the list."""

    team: Team
    members: int
    owned: dict[str, int]
    share: FairShare


def team_lines(user: User, number: str | int) -> tuple[Page[Team], list[TeamLine]]:
    """One page of the teams that the user may see."""
    page = Paginator(visible_teams(user), PER_PAGE).get_page(number)
    shares = team_shares()
    return page, [
        TeamLine(
            team=team,
            members=len(team.memberships.all()),
            owned=owned_by(team),
            share=fair_share(team.pk, shares, team.weight),
        )
        for team in page.object_list
    ]


def fair_share(team: int, shares: Mapping[int, Share], weight: float = 1.0) -> FairShare:
    """The team's share and position among all teams. A team that is not in ``shares`` has used nothing."""
    shares = {team: Share(weight=weight)} | dict(shares)
    own = shares[team]
    weights, used = sum(each.weight for each in shares.values()), sum(each.used for each in shares.values())
    return FairShare(
        weight=own.weight,
        used=own.used,
        due=own.weight / weights,
        had=own.used / used if used else 0.0,
        place=1 + sum(each.spent < own.spent for each in shares.values()),
        of=len(shares),
    )


def team_quota(team: Team) -> Limited:
    """A team's use of its limits."""
    return _limited(quotas.quota_usage(team=team), f"/api/v1/quotas/teams/{quote(team.name, safe='')}")


def user_quotas(user: User, number: str | int) -> tuple[Page[User], list[Limited]]:
    """The user's own quota; for admins also those of users with individual quotas, paged."""
    users = User.objects.filter(pk=user.pk)
    if may(user, Role.ADMIN):
        users = users | User.objects.filter(quota__isnull=False)
    page = Paginator(users.order_by("username"), PER_PAGE).get_page(number)
    slots = slots_now()
    return page, [_of_user(each, slots) for each in page.object_list]


def default_limits() -> dict[str, int | None]:
    """The limits of each user without individual ones."""
    row = quotas.default_quota()
    return {name: getattr(row, name) for name in RESOURCES}


def limits_shown(limits: Mapping[str, int | None]) -> list[tuple[str, str, str]]:
    """Title, meaning and value of each limit that is set."""
    return [
        (TITLES[name], RESOURCES[name], shown_limit(name, limit)) for name, limit in limits.items() if limit is not None
    ]


def limit_fields(limits: Mapping[str, int | None]) -> dict[str, int | str | None]:
    """The limits as text and numbers of a form, sizes with their unit."""
    return {
        name: quotas.amount(name, limit) if name in quotas.SIZES and limit is not None else limit
        for name, limit in limits.items()
    }


def shown_limit(name: str, limit: int) -> str:
    """A limit as it was set: ``10 GB``."""
    text = quotas.amount(name, limit)
    return text if len(text) < LONG else shown(name, limit)


def shown(name: str, number: int) -> str:
    """An amount of a resource as text."""
    return formats.size(number) if name in quotas.SIZES else f"{number:,}"


def members_of(team: Team) -> list[tuple[Membership, str]]:
    """Its members in order of joining, each with the initial values of the role form."""
    rows = team.memberships.select_related("user").order_by("joined_at", "pk")
    return [(row, json.dumps({"user": row.user.get_username(), "role": row.role})) for row in rows]


def machines_of(team: Team) -> list[Agent]:
    """Its machines, by name."""
    return list(Agent.objects.filter(team=team).order_by("name"))


def unowned_machines() -> list[tuple[int, str]]:
    """Machines that can be assigned to a team, by ID and name."""
    return list(Agent.objects.filter(team=None).order_by("name").values_list("pk", "name")[:MOST_OFFERED])


def jobs_of(team: Team) -> list[Job]:
    """Its newest jobs."""
    return list(Job.objects.filter(team=team, simulation=None).select_related("submitted_by").order_by("-pk")[:SHOWN])


def simulations_of(team: Team) -> list[Simulation]:
    """Its newest simulations."""
    return list(Simulation.objects.filter(team=team).select_related("submitted_by").order_by("-pk")[:SHOWN])


def meters(used: Mapping[str, int], limits: Mapping[str, int | None]) -> list[Meter]:
    """A meter for each resource."""
    return [
        Meter(name=name, title=TITLES[name], about=about, used=used[name], limit=limits[name])
        for name, about in RESOURCES.items()
    ]


def _of_user(user: User, slots: SlotsNow) -> Limited:
    address = f"/api/v1/quotas/users/{quote(user.get_username(), safe='')}"
    return _limited(quotas.quota_usage(user=user, slots=slots), address)


def _limited(found: QuotaUsage, url: str) -> Limited:
    return Limited(subject=found.subject, meters=meters(found.used, found.limits), limits=found.limits, url=url)
