"""Users for admins: lists who may sign in and how, with valid credentials; enables and disables accounts."""

from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from controlplane.jobs.roles import Role, role_of
from controlplane.jobs.services import audit
from controlplane.people.models import EmergencyAccount, Identity
from controlplane.people.sessions import live_sessions, sessions_end
from controlplane.people.tokens import live_tokens, tokens_revoke


class SwitchRefused(Exception):
    """The account cannot be disabled; the text says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserLine:
    """One user in a list."""

    username: str
    role: Role | None
    """The account's role, even if it is disabled."""
    active: bool
    password: bool
    """Whether a usable password is set."""
    provider: bool
    """Whether the user signs in at the identity provider."""
    emergency: bool
    joined_at: datetime
    last_login_at: datetime | None
    tokens: int
    sessions: int


def users_listed() -> QuerySet[User]:
    """All users, ordered by name, with the annotations for ``line_of``."""
    now = timezone.now()
    valid = Q(auth_token_set__expiry=None) | Q(auth_token_set__expiry__gt=now)
    rows = User.objects.prefetch_related("groups").annotate(
        valid_tokens=Count("auth_token_set", filter=valid, distinct=True),
        live_sessions=Count("sessions", filter=Q(sessions__expire_date__gt=now), distinct=True),
        has_identity=Exists(Identity.objects.filter(user=OuterRef("pk"))),
        is_emergency=Exists(EmergencyAccount.objects.filter(user=OuterRef("pk"))),
    )
    return rows.order_by("username")


def line_of(user: User) -> UserLine:
    """The line for a row of ``users_listed``."""
    found = {group.name for group in user.groups.all()} | ({Role.ADMIN} if user.is_superuser else set())
    return UserLine(
        username=user.get_username(),
        role=next((role for role in reversed(Role) if role in found), None),
        active=user.is_active,
        password=user.has_usable_password(),
        provider=getattr(user, "has_identity", False),
        emergency=getattr(user, "is_emergency", False),
        joined_at=user.date_joined,
        last_login_at=user.last_login,
        tokens=getattr(user, "valid_tokens", 0),
        sessions=getattr(user, "live_sessions", 0),
    )


@transaction.atomic
def user_disable(*, user: User, actor: str) -> bool:
    """Disable the account, revoke its tokens and end its sessions. False if it is already disabled.

    Raises:
        SwitchRefused: if it is the actor's own account, or the last admin's.
    """
    row = User.objects.select_for_update().get(pk=user.pk)
    name = row.get_username()
    if not row.is_active:
        return False
    if name == actor:
        raise SwitchRefused("this is your own account: another admin can disable it")
    if role_of(row) == Role.ADMIN and not _admins().exclude(pk=row.pk).exists():
        raise SwitchRefused(
            f"{name} is the only admin: make another one first, with: python manage.py access NAME --role admin"
        )
    row.is_active = False
    row.save(update_fields=["is_active"])
    detail = {
        "sessions": sessions_end(live_sessions(row), actor=actor),
        "tokens": tokens_revoke(live_tokens(row), actor=actor),
    }
    audit(actor=actor, action="user-disable", subject=f"user {name}", detail=detail)
    return True


@transaction.atomic
def user_enable(*, user: User, actor: str) -> bool:
    """Enable the account again; ended sessions and tokens stay ended. False if it is already enabled."""
    if not User.objects.filter(pk=user.pk, is_active=False).update(is_active=True):
        return False
    audit(actor=actor, action="user-enable", subject=f"user {user.get_username()}")
    return True


def _admins() -> QuerySet[User]:
    return User.objects.filter(Q(is_superuser=True) | Q(groups__name=Role.ADMIN), is_active=True)
