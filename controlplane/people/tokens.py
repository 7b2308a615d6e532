"""API tokens: creation, limits, use and revocation. Knox stores their hashes, ``TokenGrant`` the rest."""

import logging
from datetime import timedelta
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import DatabaseError, transaction
from django.db.models import Q, QuerySet
from django.db.models.signals import pre_delete
from django.dispatch import receiver
from django.utils import timezone
from knox.models import AuthToken

from controlplane.jobs.roles import ORDER, Role, role_of
from controlplane.jobs.services import audit
from controlplane.people.models import TokenGrant
from controlplane.people.scopes import Scopes, parse, stored

MOST: Final = 50
"""Valid tokens of one user."""

LIFETIME: Final = timedelta(days=30)
USE_GRAIN: Final = timedelta(minutes=5)
"""Precision of the last use, to avoid a write at each request."""

logger = logging.getLogger(__name__)


class TokenRefused(Exception):
    """The token cannot be created; the text says why and what to do."""


@transaction.atomic
def token_create(
    *,
    user: User,
    name: str,
    actor: str,
    role: Role | None = None,
    lifetime: timedelta = LIFETIME,
    parent: AuthToken | None = None,
    scopes: Scopes | None = None,
) -> tuple[AuthToken, str]:
    """Create a token and return it with its secret, which is not stored; it has at most ``role``, and these scopes.

    A token that is created with another one (``parent``) expires no later and is revoked with it, so that a thief of a
    token cannot keep access beyond its end.

    Raises:
        TokenRefused: if the user has too many tokens or a lower role, or the parent does not have these scopes.
    """
    User.objects.select_for_update().get(pk=user.pk)  # of two requests at the limit, one is refused
    count = live_tokens(user).count()
    if count >= MOST:
        raise TokenRefused(
            f"{user.get_username()} has {count} valid API tokens, the limit is {MOST}: revoke some first"
        )
    held = role_of(user)
    if role is not None and (held is None or ORDER.index(role) > ORDER.index(held)):
        raise TokenRefused(f"the role {role} is above the role of {user.get_username()} here, {held or 'none'}")
    carried = _scopes_within(parent, scopes)
    limit = role or getattr(user, "role_limit", None) or ""
    if parent is not None and not AuthToken.objects.select_for_update().filter(pk=parent.pk).exists():
        raise TokenRefused("the token of this request was revoked")
    row, secret = AuthToken.objects.create(user=user, expiry=lifetime)
    if parent is not None and parent.expiry is not None:
        row.expiry = min(row.expiry, parent.expiry)
        row.save(update_fields=["expiry"])
    TokenGrant.objects.create(token=row, name=name, role=limit, scopes=stored(carried), parent=parent)
    detail = {"name": name, "user": user.get_username(), "role": limit or "that of the user"}
    if carried:
        detail["scopes"] = stored(carried)
    if parent is not None:
        detail["parent"] = f"token {parent.token_key}"
    audit(actor=actor, action="token-create", subject=f"token {row.token_key}", detail=detail)
    return row, secret


def _scopes_within(parent: AuthToken | None, scopes: Scopes | None) -> Scopes:
    """The scopes of a new token; those of its parent if none are named.

    Raises:
        TokenRefused: if the parent does not have all of them.
    """
    held = scopes_of(parent) if parent is not None else None
    if held is None:
        return scopes or frozenset()
    if missing := (scopes or frozenset()) - held:
        raise TokenRefused(f"the token of this request has not the scope {', '.join(sorted(missing))}")
    return scopes or held


def scopes_of(token: AuthToken) -> Scopes | None:
    """The token's scopes; None: it may do everything that its role may."""
    grant: TokenGrant | None = getattr(token, "grant", None)
    return parse(grant.scopes.split()) if grant and grant.scopes else None


def live_tokens(user: User | None = None) -> QuerySet[AuthToken]:
    """Unexpired tokens of the user, or of all users, the newest first."""
    valid = Q(expiry=None) | Q(expiry__gt=timezone.now())
    rows: QuerySet[AuthToken] = AuthToken.objects.filter(valid).select_related("grant__parent", "user")
    return (rows if user is None else rows.filter(user=user)).order_by("-created", "token_key")


@transaction.atomic
def tokens_revoke(rows: QuerySet[AuthToken], *, actor: str) -> int:
    """Revoke these tokens and all that were created with them; returns their number."""
    ended = list(rows.select_related("user").select_for_update(of=("self",)))
    gone: set[str] = set()
    for row in ended:
        if row.pk in gone:
            continue
        family = _family(row)
        gone |= {each.pk for each in family}
        row.delete()
        for each in family:
            detail = {"user": each.user.get_username()}
            if each != row:
                detail["with"] = f"token {row.token_key}"
            audit(actor=actor, action="token-revoke", subject=f"token {each.token_key}", detail=detail)
    return len(gone)


@receiver(pre_delete, sender=AuthToken)
def end_children(sender: object, instance: AuthToken, **_: Any) -> None:
    """Delete tokens that were created with a deleted one: without a grant they would have all rights."""
    for child in AuthToken.objects.filter(grant__parent=instance):
        child.delete()


def _family(row: AuthToken) -> list[AuthToken]:
    """The token and all that were created with it, directly or indirectly."""
    found = [row]
    for each in found:
        found += AuthToken.objects.select_related("user").filter(grant__parent=each).order_by("created", "pk")
    return found


def limit_of(token: AuthToken) -> Role | None:
    """The token's highest role; None: its user's role."""
    grant: TokenGrant | None = getattr(token, "grant", None)
    return Role(grant.role) if grant and grant.role else None


def token_used(token: AuthToken, address: str) -> None:
    """Store the use, once per ``USE_GRAIN``. Errors of a busy database are ignored: they must not fail the request."""
    now = timezone.now()
    grant: TokenGrant | None = getattr(token, "grant", None)
    if grant is None or (grant.used_at and grant.used_at > now - USE_GRAIN):
        return
    try:
        with transaction.atomic():
            TokenGrant.objects.filter(pk=grant.pk).update(used_at=now, used_from=address)
    except DatabaseError as error:
        logger.warning("the use of an API token was not stored: %s", error)
