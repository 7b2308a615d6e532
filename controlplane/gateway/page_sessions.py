"""Which sessions may receive ticks: those of signed-in, active users with a role.

Checked when a page connects and every ``RECHECK_S`` after that, so that a sign-out or a lost role closes the socket.
"""

from collections.abc import Collection
from typing import Final

from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from controlplane.jobs.roles import Role, may
from controlplane.people.models import Session

RECHECK_S: Final = 2.0


def admitted(sessions: Collection[str]) -> set[str]:
    """The keys of those sessions that may receive ticks now."""
    if not sessions:
        return set()
    rows = Session.objects.filter(session_key__in=sessions, expire_date__gt=timezone.now())
    stored = {row.session_key: row.get_decoded() for row in rows}
    people = User.objects.in_bulk({int(one[SESSION_KEY]) for one in stored.values() if SESSION_KEY in one})
    proofs = {person: user.get_session_auth_hash() for person, user in people.items() if may(user, Role.VIEWER)}
    return {key for key, one in stored.items() if _holds(one, proofs)}


def _holds(stored: dict[str, str], proofs: dict[int, str]) -> bool:
    """Whether the session belongs to one of these users and was not invalidated by a new password."""
    proof = proofs.get(int(stored.get(SESSION_KEY, 0)))
    return bool(
        proof and stored.get(BACKEND_SESSION_KEY) and constant_time_compare(stored.get(HASH_SESSION_KEY, ""), proof)
    )
