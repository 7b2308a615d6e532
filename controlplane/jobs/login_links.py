"""Links that sign a user in once, for the user of the machine that printed them.

Nothing is stored: a link is signed and contains the time of the user's last login. Any login changes that time, so it
also invalidates the link.
"""

import ipaddress
from datetime import timedelta

from django.contrib.auth.models import User
from django.core import signing
from django.utils import timezone

LIFETIME = timedelta(minutes=5)
SALT = "paceline.login-link"


def issue_login_link(user: User) -> str:
    """The path of a link that signs ``user`` in within five minutes, once."""
    user.refresh_from_db(fields=["last_login"])
    token = signing.dumps({"user": user.pk, "after": _login(user)}, salt=SALT)
    return f"/login/once/{token}/"


def redeem(token: str) -> User | None:
    """The user whom ``token`` signs in; None if it is unknown, expired or used. Of two concurrent requests, one
    succeeds.
    """
    try:
        claim = signing.loads(token, salt=SALT, max_age=LIFETIME)
    except signing.BadSignature:
        return None
    user = User.objects.filter(pk=claim["user"], is_active=True).first()
    if user is None or _login(user) != claim["after"]:
        return None
    unused = User.objects.filter(pk=user.pk, last_login=user.last_login)
    return user if unused.update(last_login=timezone.now()) == 1 else None


def from_loopback(address: str) -> bool:
    """Whether the request comes from this machine: links work only here."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _login(user: User) -> str:
    return user.last_login.isoformat() if user.last_login else ""
