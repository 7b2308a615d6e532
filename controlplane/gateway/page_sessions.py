"""Which sessions may receive ticks, and for which teams' jobs: sessions of signed-in, active users with a role.

Checked when a page connects and every ``RECHECK_S`` after that, so that a sign-out or a lost role closes the socket.
"""

from collections.abc import Collection, Iterator
from typing import Final, TypeVar

from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from controlplane.jobs.models import Job
from controlplane.jobs.roles import Role, may, teams_of
from controlplane.people.models import Session, Team

Key = TypeVar("Key", str, int)

RECHECK_S: Final = 2.0

MOST_AT_ONCE: Final = 500
"""Most sessions or jobs in one query."""

Teams = frozenset[int] | None
"""Teams: ticks contain only their jobs, and jobs without a team; None: all jobs."""


def admitted(sessions: Collection[str]) -> dict[str, Teams]:
    """The session keys that may receive ticks now, each with the teams of its user.

    The number of queries is constant up to ``MOST_AT_ONCE`` sessions.
    """
    found: dict[str, Teams] = {}
    for part in _parts(sessions):
        found |= _admitted(part)
    return found


def _admitted(sessions: Collection[str]) -> dict[str, Teams]:
    rows = Session.objects.filter(session_key__in=sessions, expire_date__gt=timezone.now())
    stored = {row.session_key: row.get_decoded() for row in rows}
    signed_in = User.objects.prefetch_related("groups", "memberships")
    people = signed_in.in_bulk({int(one[SESSION_KEY]) for one in stored.values() if SESSION_KEY in one})
    known = {person: user for person, user in people.items() if may(user, Role.VIEWER)}
    proofs = {person: user.get_session_auth_hash() for person, user in known.items()}
    limited = Team.objects.exists()
    return {
        key: _teams(known[int(one[SESSION_KEY])]) if limited else None
        for key, one in stored.items()
        if _holds(one, proofs)
    }


def user_of(session: str) -> int | None:
    """The id of the session's user; None if nobody is signed in."""
    return Session.objects.filter(session_key=session).values_list("user_id", flat=True).first()


def owners(jobs: Collection[int]) -> dict[int, int]:
    """The team of each of these jobs that has one."""
    found: dict[int, int] = {}
    for part in _parts(jobs):
        found |= dict(Job.objects.filter(pk__in=part, team__isnull=False).values_list("pk", "team_id"))
    return found


def _parts(keys: Collection[Key]) -> Iterator[list[Key]]:
    """The keys in batches of the size of one query."""
    ordered = list(keys)
    return (ordered[at : at + MOST_AT_ONCE] for at in range(0, len(ordered), MOST_AT_ONCE))


def _teams(user: User) -> Teams:
    return None if may(user, Role.ADMIN) else frozenset(teams_of(user))


def _holds(stored: dict[str, str], proofs: dict[int, str]) -> bool:
    """Whether the session belongs to one of these users and was not invalidated by a new password."""
    proof = proofs.get(int(stored.get(SESSION_KEY, 0)))
    return bool(
        proof and stored.get(BACKEND_SESSION_KEY) and constant_time_compare(stored.get(HASH_SESSION_KEY, ""), proof)
    )
