"""Limits on wrong passwords, by account and by network.

An attempt is stored before its password is checked, and deleted if it was right: concurrent attempts cannot exceed a
limit. They are in the database, so that all web processes count together, and a restart does not reset them.
"""

from datetime import datetime, timedelta
from typing import Final

from django.db.models import QuerySet
from django.utils import timezone

from controlplane.people.models import LoginAttempt
from controlplane.protocol.keys import secret_digest

WINDOW: Final = timedelta(minutes=15)

PER_ACCOUNT_AND_NETWORK: Final = 10
PER_NETWORK: Final = 30
PER_ACCOUNT: Final = 100
"""From all networks. Higher than the others, so that a stranger cannot easily lock out the owner of an account."""


class Throttled(Exception):
    """There were too many wrong passwords."""

    def __init__(self, wait_s: int) -> None:
        self.wait_s = wait_s
        super().__init__(f"Too many failed sign-ins. Try again in {-(-wait_s // 60)} min.")


def admit(*, account: str, network: str, now: datetime | None = None) -> LoginAttempt:
    """Count an attempt; after that its password may be checked.

    Raises:
        Throttled: if there were too many; the password must not be checked.
    """
    now = now or timezone.now()
    attempt = LoginAttempt.objects.create(at=now, account=_digest(account), network=network)
    wait = max(_wait_s(rows.exclude(pk=attempt.pk), limit, now) for rows, limit in _counted(attempt, now))
    if wait > 0:
        attempt.delete()
        raise Throttled(wait)
    return attempt


def forgive(attempt: LoginAttempt) -> None:
    """After a right password: delete this account's earlier wrong attempts from the same network."""
    LoginAttempt.objects.filter(account=attempt.account, network=attempt.network).delete()


def blocks(attempt: LoginAttempt) -> bool:
    """Whether this failure reached a limit."""
    return any(rows.count() >= limit for rows, limit in _counted(attempt, attempt.at))


def _counted(attempt: LoginAttempt, now: datetime) -> list[tuple[QuerySet[LoginAttempt], int]]:
    recent = LoginAttempt.objects.filter(at__gt=now - WINDOW).order_by("at")
    return [
        (recent.filter(account=attempt.account, network=attempt.network), PER_ACCOUNT_AND_NETWORK),
        (recent.filter(network=attempt.network), PER_NETWORK),
        (recent.filter(account=attempt.account), PER_ACCOUNT),
    ]


def _wait_s(others: QuerySet[LoginAttempt], limit: int, now: datetime) -> int:
    """Seconds until fewer than ``limit`` of them are in the window."""
    times = list(others.values_list("at", flat=True))
    if len(times) < limit:
        return 0
    return max(1, int((times[len(times) - limit] + WINDOW - now).total_seconds()))


def _digest(account: str) -> str:
    return secret_digest(account.casefold())
