"""Django's session engine, on rows that also store the user and the origin of a session."""

from datetime import datetime
from typing import Any, Final

from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore as DatabaseStore
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from controlplane.jobs.services import audit
from controlplane.people.models import Session
from controlplane.protocol.keys import secret_digest

ORIGIN: Final = "_origin"
"""The key of the origin in a session's data."""


class SessionStore(DatabaseStore):
    """The engine that ``SESSION_ENGINE`` names."""

    @classmethod
    def get_model_class(cls) -> type[Session]:
        """The model of the rows."""
        return Session

    def create_model_instance(self, data: dict[str, Any]) -> Session:
        """A row of this state of the session."""
        return _described(super().create_model_instance(data), data)

    async def acreate_model_instance(self, data: dict[str, Any]) -> Session:
        """The same, awaited."""
        return _described(await super().acreate_model_instance(data), data)


def origin(address: str, browser: str) -> dict[str, str]:
    """The origin of a session: the values to store at its login."""
    return {"at": timezone.now().isoformat(), "address": address, "browser": browser[:200]}


def live_sessions(user: User | None = None) -> QuerySet[Session]:
    """Unexpired sessions of the user, or of all users, the newest first."""
    rows = Session.objects.filter(expire_date__gt=timezone.now(), user__isnull=False).select_related("user")
    return (rows if user is None else rows.filter(user=user)).order_by("-signed_in_at", "number")


@transaction.atomic
def sessions_end(rows: QuerySet[Session], *, actor: str) -> int:
    """End these sessions; returns their number. The browsers' open pages are closed within seconds."""
    ended = list(rows.select_related("user"))
    for row in ended:
        row.delete()
        owner = row.user.get_username() if row.user else "nobody"
        audit(actor=actor, action="session-end", subject=f"session {row.number}", detail={"user": owner})
    return len(ended)


def _described(row: Any, data: dict[str, Any]) -> Session:
    assert isinstance(row, Session)
    row.number = secret_digest(row.session_key)[:16]
    row.user_id = int(data[SESSION_KEY]) if SESSION_KEY in data else None
    if login := data.get(ORIGIN):
        row.signed_in_at, row.address, row.browser = (
            datetime.fromisoformat(login["at"]),
            login["address"],
            login["browser"],
        )
    return row
