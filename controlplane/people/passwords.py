"""Sign-in by password, with throttling; every failure is recorded.

If local accounts are off, only passwords of emergency accounts are accepted.
"""

from typing import Any

from django.conf import settings
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest

from controlplane.jobs.services import audit
from controlplane.people import throttle
from controlplane.people.addresses import client_address, network_of


class ThrottledPasswords(ModelBackend):
    """Authentication backend for Django's accounts. Every form with a password uses it, also Django's admin's."""

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: Any
    ) -> User | None:
        """The user with this password. Sets ``throttled`` on a request that was throttled."""
        if request is None or username is None or password is None or "REMOTE_ADDR" not in request.META:
            return self._checked(request, username, password)
        address = client_address(request)
        try:
            attempt = throttle.admit(account=username, network=network_of(address))
        except throttle.Throttled as error:
            request.throttled = error  # type: ignore[attr-defined]
            raise PermissionDenied(str(error)) from None
        user = self._checked(request, username, password)
        if user is None:
            _record(username, address, blocked=throttle.blocks(attempt))
        else:
            throttle.forgive(attempt)
        return user

    def _checked(self, request: HttpRequest | None, username: str | None, password: str | None) -> User | None:
        user = super().authenticate(request, username=username, password=password)
        assert user is None or isinstance(user, User)
        if user is not None and not settings.LOCAL_ACCOUNTS and not hasattr(user, "emergency"):
            return None  # the password is right, but is refused in the same way as a wrong one
        return user


def _record(username: str, address: str, *, blocked: bool) -> None:
    """Record the failure. The account is named only if it exists: users sometimes enter their password as name."""
    known = User.objects.filter(username=username).exists()
    detail: dict[str, object] = {"address": address}
    if blocked:
        detail["blocked_s"] = int(throttle.WINDOW.total_seconds())
    audit(
        actor="anonymous", action="login-failed", subject=f"user {username}" if known else "no such user", detail=detail
    )
