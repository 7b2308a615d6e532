"""Credentials of agents, and how a new one replaces the old one while the agent is connected.

A rotation is requested; then the gateway with the agent's connection creates a new secret and sends it. The rotation
ends once the agent has confirmed that it stored the secret, or has reconnected with it. Until then both are valid, the
old one for ``ROTATION_LIMIT`` at most. Only hashes are stored, and every step is one conditional write.
"""

import secrets
import shlex
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from django.db.models import QuerySet
from django.utils import timezone

from controlplane.fleet.models import Agent
from controlplane.fleet.selectors import agent_by_credential, digest
from paceline.cli.places import MANAGE

ROTATION_LIMIT = timedelta(minutes=10)
"""How long after the request a new credential can be sent, and how long the old one stays valid after that."""

RotationState = Literal["", "pending", "unheard", "ended"]
"""No rotation; waiting for the machine; expired before a secret was made; expired, with the old credential's end."""

MAX_FAILURE = 300


class RotationRefused(Exception):
    """An agent's credential cannot be rotated now; the text says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """The state of an agent's latest rotation."""

    state: RotationState
    asked_at: datetime | None
    rotated_at: datetime | None
    """When the agent was last known to hold its new credential."""
    failure: str
    """Why the agent could not store the last one; empty: no failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """An authenticated agent."""

    agent: Agent
    outstanding: str | None
    """Hash of a credential that was made for it and that it cannot have stored, since it connected with the old one."""
    rotated: bool
    """Whether it used its new credential for the first time: it had stored it, and the old one ends by this."""


def rejoining(name: str) -> str:
    """The command that makes a token with which the machine of this name, already known, joins again."""
    return f"{MANAGE} enroll --name {shlex.quote(name)}"


def rotation(agent: Agent, now: datetime | None = None) -> Rotation:
    """The state of the rotation of this row's credential."""
    return Rotation(
        state=_state(agent, now or timezone.now()),
        asked_at=agent.rotation_asked_at,
        rotated_at=agent.rotated_at,
        failure=agent.rotation_failure,
    )


def is_outstanding(credential: str) -> bool:
    """Whether it is not yet known that the agent stored it: only then does admission write."""
    return Agent.objects.filter(next_digest=digest(credential)).exists()


def agent_admitted(credential: str, *, now: datetime | None = None) -> Admission | None:
    """The agent with this credential; None for an unknown or expired one."""
    now = now or timezone.now()
    hashed = digest(credential)
    rotated = is_outstanding(credential) and _kept(Agent.objects.filter(next_digest=hashed), hashed, now)
    agent = agent_by_credential(credential)
    if agent is None or _state(agent, now) == "ended":
        return None
    return Admission(agent=agent, outstanding=agent.next_digest, rotated=rotated)


def rotation_request(agent_id: int, *, now: datetime | None = None) -> datetime:
    """Request a new credential for the agent, sent as soon as its connection can carry one; the time of the request.

    Raises:
        RotationRefused: if the machine is offline, cannot receive one, or has one pending already.
    """
    now = now or timezone.now()
    agent = Agent.objects.get(pk=agent_id)
    _check(agent, now)
    requested = Agent.objects.filter(
        pk=agent_id, state=Agent.State.ONLINE, next_digest=None, rotation_asked_at=agent.rotation_asked_at
    )
    if not requested.update(rotation_asked_at=now, rotation_failure=""):
        raise RotationRefused(f"agent {agent.name!r} has just changed: ask again")
    return now


def rotation_withdraw(agent_id: int, asked_at: datetime) -> bool:
    """Cancel the rotation requested then; False if a secret was already created."""
    unanswered = Agent.objects.filter(pk=agent_id, next_digest=None, rotation_asked_at=asked_at)
    return bool(unanswered.update(rotation_asked_at=None))


def credential_issue(agent_id: int, outstanding: str | None, *, now: datetime | None = None) -> str | None:
    """A new credential in clear, only here, if the agent should get one; otherwise None.

    ``outstanding`` is the credential that its connection knows to be made and not stored. If another connection has
    made one since, this makes none: the agent could not know which of the two is valid.
    """
    now = now or timezone.now()
    pending = Agent.objects.filter(
        pk=agent_id, can_rotate=True, next_digest=outstanding, rotation_asked_at__gt=now - ROTATION_LIMIT
    )
    if not pending.exists():  # true for nearly every connection, which then need not wait for a write
        return None
    secret = secrets.token_urlsafe(32)
    return secret if pending.update(next_digest=digest(secret)) else None


def credential_kept(agent_id: int, hashed: str, *, now: datetime | None = None) -> bool:
    """The agent reports that it stored the credential with this hash: the old one ends. False if that was known."""
    return _kept(Agent.objects.filter(pk=agent_id, next_digest=hashed), hashed, now or timezone.now())


def credential_not_kept(agent_id: int, hashed: str, failure: str) -> bool:
    """The agent reports that it could not store it: the old one stays. False if that was known."""
    fields = {"next_digest": None, "rotation_asked_at": None, "rotation_failure": failure[:MAX_FAILURE]}
    return bool(Agent.objects.filter(pk=agent_id, next_digest=hashed).update(**fields))


def _kept(made: QuerySet[Agent], hashed: str, now: datetime) -> bool:
    fields = {"credential_digest": hashed, "next_digest": None, "rotation_asked_at": None, "rotation_failure": ""}
    return bool(made.update(**fields, rotated_at=now))


def _state(agent: Agent, now: datetime) -> RotationState:
    if agent.rotation_asked_at is None:
        return ""
    if now - agent.rotation_asked_at < ROTATION_LIMIT:
        return "pending"
    return "unheard" if agent.next_digest is None else "ended"


def _check(agent: Agent, now: datetime) -> None:
    again = f"stop it and let it join again with a token, from: {rejoining(agent.name)}"
    if agent.state != Agent.State.ONLINE:
        raise RotationRefused(
            f"agent {agent.name!r} is offline, and a new credential is told over its connection: ask again once it is "
            f"back, or let it join again with a token, from: {rejoining(agent.name)}; that ends the old one"
        )
    if not agent.can_rotate:
        found = agent.version or "an unknown release"
        raise RotationRefused(f"agent {agent.name!r} runs {found}, which takes no new one: update it, or {again}")
    state = _state(agent, now)
    if state == "pending":
        at = f"{agent.rotation_asked_at:%Y-%m-%d %H:%M:%S} UTC"
        raise RotationRefused(f"agent {agent.name!r} has a new credential coming, asked for at {at}: wait for it")
    if state == "ended":
        raise RotationRefused(
            f"agent {agent.name!r} never acknowledged its new credential, and the old one has ended: {again}"
        )
