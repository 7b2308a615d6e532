"""Writes logins and logouts to the audit trail."""

from typing import Any

from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in, user_logged_out
from django.dispatch import receiver
from django.http import HttpRequest

from controlplane.jobs.services import audit
from controlplane.people.addresses import client_address
from controlplane.people.sessions import ORIGIN, origin


@receiver(user_logged_in)
def record_login(sender: object, request: HttpRequest, user: User, **_: Any) -> None:
    """Record who signed in and from where; not logins of local programs without an address."""
    if "REMOTE_ADDR" in request.META:
        address = client_address(request)
        request.session[ORIGIN] = origin(address, request.headers.get("User-Agent", ""))
        detail = {"address": address, "by": getattr(request, "signed_in_by", "password")}
        audit(actor=user.get_username(), action="login", subject=f"user {user.get_username()}", detail=detail)


@receiver(user_logged_out)
def record_logout(sender: object, request: HttpRequest, user: User | None, **_: Any) -> None:
    """Record who signed out."""
    if user is not None and "REMOTE_ADDR" in request.META:
        detail = {"address": client_address(request)}
        audit(actor=user.get_username(), action="logout", subject=f"user {user.get_username()}", detail=detail)
