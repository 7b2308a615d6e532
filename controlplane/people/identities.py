"""Maps identities of the OpenID Connect provider to users, with the role that their groups give."""

from typing import Any

from django.conf import settings
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone

from controlplane.jobs.roles import ORDER, Role
from controlplane.jobs.services import audit
from controlplane.people.claims import Claims, SignInRefused, provider
from controlplane.people.models import Identity


class Identities(ModelBackend):
    """Authentication backend for the provider's claims; checks no passwords."""

    def authenticate(  # type: ignore[override]
        self, request: HttpRequest | None, claims: Claims | None = None, address: str = "", **kwargs: Any
    ) -> User | None:
        """The user with these claims, with the role that the groups give now.

        Raises:
            SignInRefused: if they may not sign in.
        """
        if claims is None:
            return None
        try:
            with transaction.atomic():
                user, role = _signed_in(claims)
            if role is None:  # after the transaction: a role of before is gone although no one is signed in
                raise _no_role(claims)
        except SignInRefused as refusal:
            _record(claims, str(refusal), address)
            raise
        return user


def role_of_groups(groups: tuple[str, ...]) -> Role | None:
    """The highest role that the groups give; the default if they give none."""
    configured = provider()
    given: set[str | None] = {configured.roles[group] for group in groups if group in configured.roles}
    given = given or {configured.default_role}
    return next((role for role in reversed(ORDER) if role in given), None)


def overdue_days(user: User) -> int | None:
    """The limit in days if the user's last sign-in is longer ago: API tokens are then refused; otherwise None."""
    if settings.OIDC is None:
        return None
    configured = provider()
    seen = Identity.objects.filter(user=user, issuer=configured.issuer).values_list("signed_in_at", flat=True).first()
    return configured.renew_after.days if seen and seen < timezone.now() - configured.renew_after else None


def link(user: User, subject: str) -> Identity:
    """Link this user to that subject at the provider.

    Raises:
        ValueError: if either is linked already, or the user is a superuser.
    """
    issuer = provider().issuer
    if user.is_superuser:
        raise ValueError(f"{user.get_username()} is a superuser: groups do not set its role")
    other = Identity.objects.filter(issuer=issuer, subject=subject).exclude(user=user).select_related("user").first()
    if other is not None:
        raise ValueError(f"this subject is {other.user.get_username()} already")
    row, _ = Identity.objects.update_or_create(user=user, defaults={"issuer": issuer, "subject": subject})
    return row


def _signed_in(claims: Claims) -> tuple[User, Role | None]:
    row = Identity.objects.select_for_update().filter(issuer=provider().issuer, subject=claims.subject).first()
    role = role_of_groups(claims.groups)
    if row is None and role is None:
        raise _no_role(claims)
    user = row.user if row else _created(claims)
    if not user.is_active:
        raise SignInRefused(f"The account {user.get_username()} is disabled.", cure="Ask an admin.")
    _give(user, role)
    Identity.objects.filter(user=user).update(signed_in_at=timezone.now())
    return user, role


def _created(claims: Claims) -> User:
    try:
        User.username_validator(claims.name)
    except ValidationError:
        raise SignInRefused(
            f"The provider's name for you, {claims.name!r}, cannot be a user name here: letters, digits and @.+-_",
            cure="An admin of this installation can name another claim.",
        ) from None
    if User.objects.filter(username__iexact=claims.name).exists():
        raise SignInRefused(
            f"There is a local account {claims.name!r} already.",
            cure=f"If it is yours, an admin links it: manage.py access {claims.name} --subject {claims.subject}",
        )
    user = User.objects.create_user(claims.name, email=claims.email)  # without a password
    Identity.objects.create(user=user, issuer=provider().issuer, subject=claims.subject)
    audit(
        actor="identity provider",
        action="user-create",
        subject=f"user {claims.name}",
        detail={"issuer": provider().issuer, "subject": claims.subject},
    )
    return user


def _give(user: User, role: Role | None) -> None:
    """Set exactly this role, and remove roles of earlier sign-ins."""
    held = set(user.groups.filter(name__in=list(ORDER)).values_list("name", flat=True))
    if held == ({role} if role else set()):
        return
    user.groups.remove(*Group.objects.filter(name__in=held))
    if role is not None:
        user.groups.add(Group.objects.get_or_create(name=role)[0])
    detail = {"from": sorted(held), "to": role, "by": "groups of the identity provider"}
    audit(actor="identity provider", action="role-change", subject=f"user {user.get_username()}", detail=detail)


def _no_role(claims: Claims) -> SignInRefused:
    found = ", ".join(claims.groups[:20]) or "none"
    expected = ", ".join(provider().roles) or "none is configured"
    return SignInRefused(
        f"None of your groups at the identity provider gives a role here. Found: {found}.",
        cure=f"Ask who manages them for one of these: {expected}.",
    )


def _record(claims: Claims, reason: str, address: str) -> None:
    detail = {"address": address, "by": "identity provider", "name": claims.name, "reason": reason}
    audit(actor="anonymous", action="login-failed", subject=f"subject {claims.subject}", detail=detail)
