"""Who may do what: three Django groups, each of which may all that the one before it may."""

from enum import StrEnum

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser


class Role(StrEnum):
    """A group's name."""

    VIEWER = "viewer"
    """Looks at everything."""
    OPERATOR = "operator"
    """Submits and stops jobs."""
    ADMIN = "admin"
    """Lets machines join."""


ORDER = tuple(Role)


def role_of(user: AbstractBaseUser | AnonymousUser) -> Role | None:
    """The highest role of the user; superusers are admins, whoever is in no group has none."""
    if not user.is_authenticated or not user.is_active:
        return None
    if getattr(user, "is_superuser", False):
        return Role.ADMIN
    held = set(user.groups.values_list("name", flat=True))  # type: ignore[union-attr]
    return next((role for role in reversed(ORDER) if role in held), None)


def may(user: AbstractBaseUser | AnonymousUser, needed: Role) -> bool:
    """Whether the user's role is ``needed`` or above it."""
    role = role_of(user)
    return role is not None and ORDER.index(role) >= ORDER.index(needed)
