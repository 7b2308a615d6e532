"""Credentials of agents, and how a new one replaces the old one while the agent is connected.

A rotation is requested; then the gateway with the agent's connection creates a new secret and sends it. The rotation
ends when the agent confirms that it stored the secret, or reconnects with it. Until then both are valid, the
old one for ``ROTATION_LIMIT`` at most. Only hashes are stored, and every step is one conditional write.

Credentials expire. Long before that, the control plane requests a new one if the agent is connected; in
such a renewal the old one stays valid until it expires.
"""

import secrets
import shlex
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from django.conf import settings
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from controlplane.fleet.models import Agent
from controlplane.fleet.selectors import agent_by_credential, digest
from paceline.cli.places import MANAGE

ROTATION_LIMIT = timedelta(minutes=10)
"""How long after the request a new credential can be sent, and how long the old one stays valid afterwards."""

RENEWED_BEFORE = timedelta(days=30)
"""How long before its expiry a credential is renewed; a third of its lifetime, if that is shorter."""

RENEWAL_RETRY = timedelta(hours=1)
"""Interval between two requests of a renewal."""

RENEWED_AT_ONCE = 100
"""Most renewals per step: credentials of a fleet may expire at the same time."""

RotationState = Literal["", "pending", "unheard", "ended"]
"""None; waiting for the machine; timed out before a secret was sent; timed out and the old credential has expired."""

MAX_FAILURE = 300


class RotationRefused(Exception):
    """An agent's credential cannot be rotated now; the text says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """The state of an agent's latest rotation."""

    state: RotationState
    requested_at: datetime | None
    rotated_at: datetime | None
    """When the agent was last known to hold its new credential."""
    failure: str
    """Why the agent could not store the last credential; empty: no failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """An authenticated agent."""

    agent: Agent
    expired_at: datetime | None = None
    """When its credential expired, so that it may not connect; None: it is valid."""
    outstanding: str | None
    """Hash of a new credential that it has not stored, since it connected with the old one."""
    rotated: bool
    """Whether it used its new credential for the first time, which invalidates the old one."""


def rejoining(name: str) -> str:
    """The command that creates a token with which a known machine of this name can join again."""
    return f"{MANAGE} enroll --name {shlex.quote(name)}"


def expiry_from(now: datetime) -> datetime | None:
    """When a credential that is created now expires; None: never."""
    lifetime: timedelta | None = settings.CREDENTIAL_LIFETIME
    return None if lifetime is None else now + lifetime


def renewed_from(agent: Agent) -> datetime | None:
    """The time from which the agent's credential can be renewed; None: it does not expire."""
    if agent.credential_expires_at is None:
        return None
    lifetime: timedelta | None = settings.CREDENTIAL_LIFETIME
    return agent.credential_expires_at - min(RENEWED_BEFORE, (lifetime or RENEWED_BEFORE * 3) / 3)


def rotation(agent: Agent, now: datetime | None = None) -> Rotation:
    """The state of the rotation of this row's credential."""
    return Rotation(
        state=_state(agent, now or timezone.now()),
        requested_at=agent.rotation_asked_at,
        rotated_at=agent.rotated_at,
        failure=agent.rotation_failure,
    )


def is_outstanding(credential: str) -> bool:
    """Whether the agent has not yet confirmed this credential: admission must then write to the database."""
    return Agent.objects.filter(next_digest=digest(credential)).exists()


def agent_admitted(credential: str, *, now: datetime | None = None) -> Admission | None:
    """The agent with this credential; None if it is unknown, or was replaced by a rotation."""
    now = now or timezone.now()
    hashed = digest(credential)
    rotated = is_outstanding(credential) and _kept(Agent.objects.filter(next_digest=hashed), hashed, now)
    agent = agent_by_credential(credential)
    if agent is None or _state(agent, now) == "ended":
        return None
    expires_at = agent.credential_expires_at
    is_expired = expires_at is not None and expires_at <= now
    return Admission(
        agent=agent,
        expired_at=expires_at if is_expired else None,
        outstanding=agent.next_digest,
        rotated=rotated,
    )


def expired_sentence(agent: Agent, expired_at: datetime) -> str:
    """Why an agent with an expired credential may not connect or stay connected, and the cure."""
    return (
        f"the credential of agent {agent.name!r} expired at {expired_at:%Y-%m-%d %H:%M} UTC: "
        f"let it join again with a token, from: {rejoining(agent.name)}"
    )


REMOVED: Final = f"the machine was removed: let it join again with a token, from: {MANAGE} enroll"
"""Why an agent may not stay connected, and the cure."""


def credentials_over(agent_ids: Collection[int], *, now: datetime | None = None) -> dict[int, str]:
    """Agents among these with an invalid credential, each with the reason and the cure."""
    now = now or timezone.now()
    connected = Agent.objects.filter(pk__in=agent_ids)
    removed = set(agent_ids) - set(connected.values_list("pk", flat=True))
    over = dict.fromkeys(removed, REMOVED)
    for agent in agents_near_end(now).filter(pk__in=agent_ids):
        if (why := _over(agent, now)) is not None:
            over[agent.pk] = why
    return over


def agents_near_end(now: datetime) -> QuerySet[Agent]:
    """Candidates for ``credentials_over``; all other agents have a valid credential."""
    unacknowledged = Q(next_digest__isnull=False, rotation_asked_at__lte=now - ROTATION_LIMIT)
    return Agent.objects.filter(unacknowledged | Q(credential_expires_at__lte=now))


def _over(agent: Agent, now: datetime) -> str | None:
    expires_at = agent.credential_expires_at
    if _state(agent, now) == "ended":
        return _ended_sentence(agent)
    return None if expires_at is None or expires_at > now else expired_sentence(agent, expires_at)


def renewals_request(*, now: datetime | None = None) -> list[Agent]:
    """Request new credentials for connected agents with one that expires soon; returns them, the most urgent first."""
    now = now or timezone.now()
    free = Q(rotation_asked_at=None) | Q(rotation_asked_at__lte=now - ROTATION_LIMIT)
    retried = Q(renewal_asked_at=None) | Q(renewal_asked_at__lte=now - RENEWAL_RETRY)
    lifetime: timedelta | None = settings.CREDENTIAL_LIFETIME
    soon = now + min(RENEWED_BEFORE, (lifetime or RENEWED_BEFORE * 3) / 3)
    due = Agent.objects.filter(free, retried, state=Agent.State.ONLINE, can_rotate=True)
    ends = Q(credential_expires_at__gt=now, credential_expires_at__lte=soon)
    if lifetime is not None:
        ends |= Q(credential_expires_at=None)  # from before credentials expired
    due = due.filter(ends).order_by("credential_expires_at", "pk")
    found = []
    for agent in due[:RENEWED_AT_ONCE]:
        unchanged = Agent.objects.filter(pk=agent.pk, rotation_asked_at=agent.rotation_asked_at)
        if _state(agent, now) != "ended" and unchanged.update(rotation_asked_at=now, renewal_asked_at=now):
            found.append(agent)
    return found


def rotation_request(agent_id: int, *, now: datetime | None = None) -> datetime:
    """Request a new credential for the agent, to be sent over its connection; returns the time of the request.

    It replaces a renewal that was never acknowledged: the old credential then ends after ``ROTATION_LIMIT``.

    Raises:
        RotationRefused: if the machine is offline, cannot receive one, or has one pending already.
    """
    now = now or timezone.now()
    agent = Agent.objects.get(pk=agent_id)
    _check(agent, now)
    requested = Agent.objects.filter(
        pk=agent_id,
        state=Agent.State.ONLINE,
        next_digest=agent.next_digest,
        rotation_asked_at=agent.rotation_asked_at,
    )
    if not requested.update(rotation_asked_at=now, rotation_failure=""):
        raise RotationRefused(f"agent {agent.name!r} has just changed: ask again")
    return now


def rotation_withdraw(agent_id: int, requested_at: datetime, outstanding: str | None = None) -> bool:
    """Cancel the rotation that was requested at that time; False if a secret was already created.

    ``outstanding`` is the credential of a renewal that it replaced; that renewal is restored.
    """
    unanswered = Agent.objects.filter(pk=agent_id, next_digest=outstanding, rotation_asked_at=requested_at)
    before = None if outstanding is None else F("renewal_asked_at")
    return bool(unanswered.update(rotation_asked_at=before))


def credential_issue(agent_id: int, outstanding: str | None, *, now: datetime | None = None) -> str | None:
    """Create a credential and return it in clear text, only here, if the agent should get one; otherwise None.

    ``outstanding`` is the unconfirmed credential that the connection knows of. If another connection has
    created one since, this returns None: the agent could not know which of the two is valid.
    """
    now = now or timezone.now()
    pending = Agent.objects.filter(
        pk=agent_id, can_rotate=True, next_digest=outstanding, rotation_asked_at__gt=now - ROTATION_LIMIT
    )
    if not pending.exists():  # true for nearly every connection: no write needed
        return None
    secret = secrets.token_urlsafe(32)
    return secret if pending.update(next_digest=digest(secret)) else None


def credential_kept(agent_id: int, hashed: str, *, now: datetime | None = None) -> bool:
    """Record that the agent stored the credential with this hash: the old one ends. False if that was known."""
    return _kept(Agent.objects.filter(pk=agent_id, next_digest=hashed), hashed, now or timezone.now())


def credential_not_kept(agent_id: int, hashed: str, failure: str) -> bool:
    """Record that the agent could not store it: the old one stays valid. False if that was known."""
    fields = {"next_digest": None, "rotation_asked_at": None, "rotation_failure": failure[:MAX_FAILURE]}
    return bool(Agent.objects.filter(pk=agent_id, next_digest=hashed).update(**fields))


def _kept(made: QuerySet[Agent], hashed: str, now: datetime) -> bool:
    """Make the new credential the only one. Its lifetime starts at the request, however late the confirmation is."""
    lifetime: timedelta | None = settings.CREDENTIAL_LIFETIME
    expires_at = None if lifetime is None else F("rotation_asked_at") + lifetime
    fields = {"credential_digest": hashed, "next_digest": None, "rotation_asked_at": None, "rotation_failure": ""}
    return bool(made.update(**fields, rotated_at=now, credential_expires_at=expires_at))


def _state(agent: Agent, now: datetime) -> RotationState:
    if agent.rotation_asked_at is None:
        return ""
    if now - agent.rotation_asked_at < ROTATION_LIMIT:
        return "pending"
    is_renewal = agent.rotation_asked_at == agent.renewal_asked_at
    return "unheard" if agent.next_digest is None or is_renewal else "ended"


def _check(agent: Agent, now: datetime) -> None:
    if agent.state != Agent.State.ONLINE:
        raise RotationRefused(
            f"agent {agent.name!r} is offline, and a new credential is sent over its connection: try again once it is "
            f"back, or let it join again with a token, from: {rejoining(agent.name)}; that ends the old one"
        )
    if not agent.can_rotate:
        found = agent.version or "an unknown release"
        raise RotationRefused(
            f"agent {agent.name!r} runs {found}, which takes no new one: update it, or {_again(agent)}"
        )
    state = _state(agent, now)
    if state == "pending":
        at = f"{agent.rotation_asked_at:%Y-%m-%d %H:%M:%S} UTC"
        raise RotationRefused(f"agent {agent.name!r} has a pending request for a new credential from {at}: wait for it")
    if state == "ended":
        raise RotationRefused(_ended_sentence(agent))


def _again(agent: Agent) -> str:
    return f"stop it and let it join again with a token, from: {rejoining(agent.name)}"


def _ended_sentence(agent: Agent) -> str:
    return f"agent {agent.name!r} never acknowledged its new credential, and the old one has ended: {_again(agent)}"
