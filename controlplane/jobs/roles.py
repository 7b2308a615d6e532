"""Permissions: three Django groups, each with all permissions of the one before it."""

from collections.abc import Callable
from enum import StrEnum
from functools import cache

from django.contrib.auth.models import AnonymousUser, User


class Role(StrEnum):
    """A group's name."""

    VIEWER = "viewer"
    """Views everything."""
    OPERATOR = "operator"
    """Submits and stops jobs."""
    ADMIN = "admin"
    """Lets machines join."""


ORDER = tuple(Role)


def role_of(user: User | AnonymousUser) -> Role | None:
    """The highest role of the user; superusers are admins, users without a group have none.

    If an API token has a lower role than its user, ``role_limit`` of the request's user has it.
    """
    if not user.is_authenticated or not user.is_active:
        return None
    limit: Role = getattr(user, "role_limit", None) or Role.ADMIN
    held = {Role.ADMIN} if user.is_superuser else {group.name for group in user.groups.all()}
    highest = next((role for role in reversed(ORDER) if role in held), None)
    return min(highest, limit, key=ORDER.index) if highest else None


def may(user: User | AnonymousUser, needed: Role) -> bool:
    """Whether the user's role is ``needed`` or above it."""
    role = role_of(user)
    return role is not None and ORDER.index(role) >= ORDER.index(needed)


TEAM_ROLES = {"member": Role.VIEWER, "operator": Role.OPERATOR, "admin": Role.ADMIN}
"""The permissions of each role in a team, on what the team owns."""


def role_on(user: User | AnonymousUser, team: int | None) -> Role | None:
    """The user's role on what this team owns; None if the user may not even see it.

    Without a team, the role in the installation counts. Its admins are admins of all teams. A token with a
    lower role limits the role in teams as well.
    """
    held = role_of(user)
    if team is None or held is None or held == Role.ADMIN:
        return held
    role = _memberships(user).get(team)
    if role is None:
        return None
    limit: Role = getattr(user, "role_limit", None) or Role.ADMIN
    return min(TEAM_ROLES[role], limit, key=ORDER.index)


def highest_role(user: User | AnonymousUser) -> Role | None:
    """The highest of the user's roles, in the installation and in teams."""
    held = role_of(user)
    if held is None:
        return None
    found = [held, *filter(None, (role_on(user, team) for team in _memberships(user)))]
    return max(found, key=ORDER.index)


def operates(user: User | AnonymousUser) -> Callable[[int | None], bool]:
    """A function that tells whether the user may operate what a team owns. It looks each team up once, for lists."""

    @cache
    def found(team: int | None) -> bool:
        held = role_on(user, team)
        return held is not None and ORDER.index(held) >= ORDER.index(Role.OPERATOR)

    return found


def teams_of(user: User | AnonymousUser, needed: Role = Role.VIEWER) -> list[int]:
    """Teams in which the user is a member with ``needed`` or a higher role, in the order of joining."""
    if role_of(user) is None:
        return []
    return [team for team, role in _memberships(user).items() if ORDER.index(TEAM_ROLES[role]) >= ORDER.index(needed)]


def _memberships(user: User | AnonymousUser) -> dict[int, str]:
    """The user's roles by team, without a query if they were prefetched, as ``role_of`` does with groups."""
    rows = getattr(user, "memberships", None)
    ordered = [] if rows is None else sorted(rows.all(), key=lambda row: (row.joined_at, row.pk))
    return {row.team_id: row.role for row in ordered}
