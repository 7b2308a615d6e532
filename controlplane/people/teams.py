"""Teams: their members, weights, and what they own."""

import shlex
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import ProtectedError

from controlplane.fleet.models import Agent
from controlplane.jobs.models import Job
from controlplane.jobs.roles import ORDER, Role, role_of, role_on, teams_of
from controlplane.jobs.services import audit
from controlplane.people.models import Membership, Team
from paceline.cli.places import MANAGE

LEAST_WEIGHT: Final = 0.01
MOST_WEIGHT: Final = 1_000.0


class TeamRefused(Exception):
    """A change of a team that is not possible; the text says why and what to do."""


@transaction.atomic
def team_create(*, name: str, weight: float = 1.0, actor: str) -> Team:
    """A new team.

    Raises:
        TeamRefused: if there is one of that name.
    """
    try:
        with transaction.atomic():
            team = Team.objects.create(name=name, weight=weight)
    except IntegrityError:
        raise TeamRefused(f"there is a team {name!r} already: choose another name") from None
    audit(actor=actor, action="team-create", subject=f"team {name}", detail={"weight": weight})
    return team


@transaction.atomic
def team_weigh(*, team: Team, weight: float, actor: str) -> None:
    """Set the team's weight in the sharing of slots."""
    before, team.weight = team.weight, weight
    team.save(update_fields=["weight"])
    audit(actor=actor, action="team-weight", subject=f"team {team}", detail={"from": before, "to": weight})


@transaction.atomic
def team_delete(*, team: Team, actor: str) -> None:
    """Delete a team that owns nothing.

    Raises:
        TeamRefused: if it owns anything, which deleting the team would show to everyone.
    """
    name = str(team)
    try:
        team.delete()
    except ProtectedError:
        kept = [(number, things) for things, number in owned_by(team).items() if number]
        owned = ", ".join(f"{number} {things if number > 1 else things.removesuffix('s')}" for number, things in kept)
        raise TeamRefused(f"team {name!r} owns {owned}, expected none: give them to another team first") from None
    audit(actor=actor, action="team-delete", subject=f"team {name}")


@transaction.atomic
def member_set(*, team: Team, user: User, role: str, actor: str) -> Membership:
    """Make the user a member with this role."""
    row, _ = Membership.objects.update_or_create(team=team, user=user, defaults={"role": role})
    audit(actor=actor, action="team-member", subject=f"team {team}", detail={"user": user.username, "role": role})
    return row


@transaction.atomic
def member_remove(*, team: Team, user: User, actor: str) -> bool:
    """End the user's membership; False if there is none."""
    removed = Membership.objects.filter(team=team, user=user).delete()[0]
    if removed:
        audit(actor=actor, action="team-leave", subject=f"team {team}", detail={"user": user.username})
    return bool(removed)


@transaction.atomic
def owner_set(*, row: Job | Agent, team: Team | None, actor: str) -> None:
    """Give a job or a machine to a team, or to none: then all users see it.

    Raises:
        TeamRefused: for a simulated run: it belongs to the owner of its simulation.
    """
    if isinstance(row, Job) and row.simulation_id is not None:
        raise TeamRefused(f"{row} is a run of simulation {row.simulation_id}: give that to the team")
    before = str(row.team) if row.team else None
    row.team = team
    row.save(update_fields=["team"])
    subject = str(row) if isinstance(row, Job) else f"agent {row.name}"
    detail = {"from": before, "to": team.name if team else None}
    audit(actor=actor, action="owner", subject=subject, detail=detail, job=row if isinstance(row, Job) else None)


def owned_by(team: Team) -> dict[str, int]:
    """The number of objects of each kind that the team owns."""
    simulations: Any = team.simulations
    return {
        "jobs": Job.objects.filter(team=team, simulation=None).count(),
        "machines": Agent.objects.filter(team=team).count(),
        "simulations": simulations.count(),
    }


def team_for(user: User, name: str | None) -> Team | None:
    """The owner of a user's submission: the named team, otherwise the first one that the user joined and may submit
    for; None: no team.

    Raises:
        TeamRefused: if the user may not submit for it, or not without a team.
    """
    if name:
        team = Team.objects.filter(name=name).first()
        held = role_on(user, team.pk) if team else None
        if team is None or held is None:
            username, found = user.get_username(), ", ".join(_names(user)) or "none"
            raise TeamRefused(
                f"user {username!r} is in no team {name!r} (teams: {found}): its admins add members, on its page or by "
                f"{MANAGE} teams member {shlex.quote(name)} {shlex.quote(username)} --role operator"
            )
        if ORDER.index(held) < ORDER.index(Role.OPERATOR):
            raise TeamRefused(f"submitting for team {name!r} requires its role operator; yours is member")
        return team
    own = teams_of(user, Role.OPERATOR)
    if own:
        return Team.objects.get(pk=own[0])
    held = role_of(user)
    if held is None or ORDER.index(held) < ORDER.index(Role.OPERATOR):
        raise TeamRefused("submitting requires the role operator, in the installation or in a team")
    return None


def choices_of(user: User) -> list[str]:
    """The teams for which the user may submit, the default one first; an admin's own teams come before others."""
    own = teams_of(user, Role.OPERATOR)
    names = Team.objects.in_bulk(own)
    found = [names[team].name for team in own]
    if role_of(user) == Role.ADMIN:
        found += Team.objects.exclude(pk__in=own).order_by("name").values_list("name", flat=True)
    return found


def seen_by(user: User) -> list[str]:
    """Names of the teams that the user sees, for filters of lists."""
    rows = Team.objects.order_by("name")
    rows = rows if role_of(user) == Role.ADMIN else rows.filter(memberships__user=user)
    return list(rows.values_list("name", flat=True))


def _names(user: User) -> list[str]:
    return list(Membership.objects.filter(user=user).order_by("joined_at").values_list("team__name", flat=True))
