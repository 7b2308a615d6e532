"""Invitations of machines, for the API and the command line alike."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from controlplane.fleet.services import TOKEN_LIFETIME, token_create
from controlplane.jobs.services import audit


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """A token, in clear for this once."""

    id: int
    token: str
    expires_at: datetime
    command: str
    """Reads the token from standard input: on a command line every user of the machine could see it."""


@transaction.atomic
def invite(
    *,
    user: User | None,
    labels: Mapping[str, str],
    name: str = "",
    uses: int = 1,
    remove_after_s: float | None = None,
    lifetime_s: float = TOKEN_LIFETIME.total_seconds(),
) -> Invitation:
    """An invitation for machines; ``user`` is None for the command line.

    With a ``name`` it is for that machine; otherwise for as many new ones as it has ``uses``.
    """
    token, row = token_create(
        labels=labels,
        name=name,
        uses=uses,
        remove_after=None if remove_after_s is None else timedelta(seconds=remove_after_s),
        created_by=user,
        lifetime=timedelta(seconds=lifetime_s),
    )
    audit(
        actor=user.get_username() if user else "command line",
        action="agent-invite",
        subject=f"enrolment token {row.pk}",
        detail={"labels": dict(labels)} | ({"name": name} if name else {}) | ({"uses": uses} if uses > 1 else {}),
    )
    command = (
        f"python -m workers join {settings.PACELINE_URL} - --slots 1{f' --name {shlex.quote(name)}' if name else ''}"
    )
    return Invitation(id=row.pk, token=token, expires_at=row.expires_at, command=command)
