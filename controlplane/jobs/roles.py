"""Permissions: three Django groups, each with all permissions of the one before it."""

from enum import StrEnum

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
    held = {Role.ADMIN} if user.is_superuser else set(user.groups.values_list("name", flat=True))
    highest = next((role for role in reversed(ORDER) if role in held), None)
    return min(highest, limit, key=ORDER.index) if highest else None


def may(user: User | AnonymousUser, needed: Role) -> bool:
    """Whether the user's role is ``needed`` or above it."""
    role = role_of(user)
    return role is not None and ORDER.index(role) >= ORDER.index(needed)
