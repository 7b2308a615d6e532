"""Database writes of the fleet: enrolment, and presence of agents.

Every claim is one conditional write with a check of its row count, so that only one of two concurrent requests wins.
"""

import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
from django.db import transaction
from django.db.models import DateTimeField, ExpressionWrapper, F, Q, QuerySet, Value
from django.db.models.functions import Coalesce
from django.utils import timezone

from controlplane.fleet.credentials import expiry_from, rejoining
from controlplane.fleet.models import Agent, EnrolmentToken
from controlplane.fleet.selectors import digest
from controlplane.fleet.token_review import Pod
from controlplane.protocol.messages import AgentHello, Environment
from paceline.cli.places import MANAGE

TOKEN_LIFETIME = timedelta(hours=1)
"""How long an enrolment token can be used, by default."""

MOST_USES = 10_000
"""Machines that may join with one token."""

MOST_CHARACTERS = 200
"""Most characters of one value of a machine's environment."""


BESIDE = "_"
"""Separates a pod's name from the rest of an agent's name. Pod names cannot contain it, so names cannot collide."""


class EnrolmentRefused(Exception):
    """A machine may not join; the text says why and what to do."""


class RemovalRefused(ValueError):
    """The machine cannot be removed now; the message has the reason and the cure."""


class NameTaken(EnrolmentRefused):
    """An agent of that name is known, and this token does not replace it; no use of the token is consumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolment:
    """A machine that has just joined, and its credential in clear text, which is not stored."""

    agent: int
    credential: str
    labels: Mapping[str, str]


def token_create(
    *,
    labels: Mapping[str, str],
    name: str = "",
    uses: int = 1,
    remove_after: timedelta | None = None,
    created_by: Any = None,
    lifetime: timedelta = TOKEN_LIFETIME,
    now: datetime | None = None,
) -> tuple[str, EnrolmentToken]:
    """A new enrolment token, in clear text only here, and its row. With a ``name`` only that machine may join with it.

    ``uses`` machines may join with it, each under its own name. One that stays offline for ``remove_after`` is
    removed; None: never. ``created_by`` owns it; None: the command line.
    """
    token = secrets.token_urlsafe(32)
    row = EnrolmentToken.objects.create(
        digest=digest(token),
        name=name,
        labels=dict(labels),
        uses=uses,
        remove_after=remove_after,
        created_by=created_by,
        from_command_line=created_by is None,
        expires_at=(now or timezone.now()) + lifetime,
    )
    return token, row


@transaction.atomic
def token_redeem(*, token: str, name: str, now: datetime | None = None) -> Enrolment:
    """Let the machine ``name`` join with ``token``, which consumes one of its uses until the machine is removed.

    With a token that names it, a known offline machine gets a new credential, and its old one ends. So does a machine
    that joined with the same reusable token before; this consumes no use. With a reusable token so does one that joined
    with a reusable token of the same owner that has ended: the user started the fleet again.

    Raises:
        EnrolmentRefused: if the token is unknown, used up, revoked or expired, or names another machine.
        NameTaken: if an agent of that name is online, joined before with any other token, or joined from a pod.
    """
    now = now or timezone.now()
    # Locked, so that a returning machine is not removed meanwhile, which would give its use to another one.
    former = Agent.objects.select_for_update().filter(name=name).first()
    valid = EnrolmentToken.objects.filter(digest=digest(token), revoked_at=None, expires_at__gt=now)
    returning = former is not None and valid.filter(agents=former, uses__gt=1).exists()
    if not returning and valid.filter(used__lt=F("uses")).update(used=F("used") + 1, used_at=now) != 1:
        raise EnrolmentRefused(_why_refused(token))
    row = EnrolmentToken.objects.get(digest=digest(token))
    if row.name not in ("", name):
        raise EnrolmentRefused(f"this enrolment token is for machine {row.name!r}, and {name!r} asks: join as that one")
    credential = secrets.token_urlsafe(32)
    terms = {"token": row, "pod": "", "remove_after": row.remove_after, "labels": row.labels}
    known = bool(row.name) or returning
    if former is not None and not returning:
        known = known or _ended_fleets(row, now).filter(agents=former).exists()
        _return_use(former)
    agent = _admit(name, digest(credential), terms, known=known)
    return Enrolment(agent=agent, credential=credential, labels=row.labels)


@transaction.atomic
def pod_redeem(*, pod: Pod, name: str, remove_after: timedelta | None = None) -> Enrolment:
    """Let the machine ``name`` join from ``pod``; one that joined from a pod of the same identity joins again.

    Raises:
        EnrolmentRefused: if the name is not the pod's, possibly followed by ``BESIDE`` and a suffix.
        NameTaken: if an agent of that name is online, or joined in another way.
    """
    if name != pod.name and not name.startswith(f"{pod.name}{BESIDE}"):
        raise EnrolmentRefused(
            f"this token is of pod {pod.name!r}, and {name!r} asks: join with --name $(POD_NAME), the pod's own name, "
            f"or several agents of one pod with $(POD_NAME){BESIDE}0, $(POD_NAME){BESIDE}1"
        )
    credential = secrets.token_urlsafe(32)
    terms = {"token": None, "pod": pod.identity, "remove_after": remove_after, "labels": dict(pod.account.labels)}
    known = Agent.objects.filter(name=name, pod=pod.identity).exists()
    return Enrolment(
        agent=_admit(name, digest(credential), terms, known=known), credential=credential, labels=pod.account.labels
    )


def token_revoke(token_id: int, *, now: datetime | None = None) -> bool:
    """End the token; machines that joined with it stay. False if it has ended already."""
    return bool(EnrolmentToken.objects.filter(pk=token_id, revoked_at=None).update(revoked_at=now or timezone.now()))


def agents_remove_absent(*, now: datetime | None = None) -> dict[int, str]:
    """Remove machines that have been offline for as long as their token allows; returns their names by id.

    A machine that holds a slot of a job stays until the job has released it.
    """
    since = ExpressionWrapper(Value(now or timezone.now()) - F("remove_after"), output_field=DateTimeField())
    absent = Agent.objects.filter(state=Agent.State.OFFLINE, remove_after__isnull=False, reservations=None)
    absent = absent.annotate(last_here=Coalesce("seen_at", "joined_at")).filter(last_here__lte=since)
    names = {agent.pk: agent.name for agent in absent}
    return {pk: name for pk, name in names.items() if _remove(absent, pk)}


@transaction.atomic
def agent_remove(agent_id: int) -> None:
    """Remove a machine that is offline, with its credential and history; it can join again with a token.

    Raises:
        Agent.DoesNotExist: if it was removed already.
        RemovalRefused: if it is online, or holds slots of jobs.
    """
    agent = Agent.objects.select_for_update(of=("self",)).get(pk=agent_id)
    if agent.state != Agent.State.OFFLINE:
        raise RemovalRefused(f"agent {agent.name!r} is online; stop it first, on its machine")
    if jobs := sorted(set(agent.reservations.values_list("job_id", flat=True))):
        held = ", ".join(f"{job}" for job in jobs)
        raise RemovalRefused(
            f"agent {agent.name!r} holds slots of these jobs: {held}; stop these jobs, drain their workers that "
            "still run, or include those that were excluded or lost, which restart on other machines"
        )
    _return_use(agent)
    agent.delete()


@transaction.atomic
def _remove(absent: QuerySet[Agent], agent_id: int) -> bool:
    """Remove the agent if it is still among the absent ones, and give its use of a reusable token back."""
    agent = absent.select_for_update(of=("self",)).filter(pk=agent_id).first()
    if agent is None:
        return False
    _return_use(agent)
    agent.delete()
    return True


def _ended_fleets(token: EnrolmentToken, now: datetime) -> QuerySet[EnrolmentToken]:
    """Revoked or expired reusable tokens of the owner of ``token``, if that is reusable and has a known owner.

    A token whose user was deleted has none.
    """
    ended = EnrolmentToken.objects.filter(Q(expires_at__lte=now) | Q(revoked_at__isnull=False), uses__gt=1)
    if token.uses == 1 or (token.created_by_id is None and not token.from_command_line):
        return ended.none()
    return ended.filter(created_by=token.created_by_id, from_command_line=token.from_command_line)


def _return_use(agent: Agent) -> None:
    """Return its use of a reusable token: it is removed, or joins with another token."""
    EnrolmentToken.objects.filter(agents=agent, uses__gt=1, used__gt=0).update(used=F("used") - 1)


def _admit(name: str, credential_digest: str, terms: Mapping[str, Any], *, known: bool) -> int:
    """The id of the agent ``name``: a new one or, if ``known``, an offline one."""
    fields = {
        **terms,
        "credential_digest": credential_digest,
        "credential_expires_at": expiry_from(timezone.now()),
        "renewal_asked_at": None,
        "unverified_labels": {},
        "next_digest": None,
        "rotation_asked_at": None,
        "rotated_at": None,
        "rotation_failure": "",
    }
    agent, created = Agent.objects.get_or_create(name=name, defaults=fields)
    if agent.pod and agent.pod != terms["pod"]:
        raise NameTaken(
            f"agent {name!r} joined from pod {agent.pod}, and only that pod joins again as it; "
            "join under another --name"
        )
    if not created and not known:
        raise NameTaken(
            f"agent {name!r} has joined before; for that machine to join again make a token with: {rejoining(name)}"
        )
    offline = Agent.objects.filter(pk=agent.pk, state=Agent.State.OFFLINE, pod__in=("", terms["pod"]))
    if not created and not offline.update(**fields, seen_at=timezone.now()):
        raise NameTaken(f"agent {name!r} is online; stop it first, or join under another --name")
    return agent.pk


def _why_refused(token: str) -> str:
    row = EnrolmentToken.objects.filter(digest=digest(token)).first()
    cure = f"make another with: {MANAGE} enroll"
    if row is None:
        return f"this enrolment token is not known; {cure}"
    if row.revoked_at is not None:
        return f"this enrolment token was revoked at {row.revoked_at:%Y-%m-%d %H:%M:%S} UTC; {cure}"
    if row.used >= row.uses and row.uses > 1:
        return f"this enrolment token was for {row.uses:,} machines, and all of them have joined; {cure}"
    if row.used_at is not None and row.used >= row.uses:
        return f"this enrolment token was used at {row.used_at:%Y-%m-%d %H:%M:%S} UTC, and works once; {cure}"
    return f"this enrolment token expired at {row.expires_at:%Y-%m-%d %H:%M:%S} UTC; {cure}"


def agent_connected(agent_id: int, hello: AgentHello, *, now: datetime | None = None) -> bool:
    """Record that the agent is online, and its slots. False if there is no such agent."""
    agent = Agent.objects.filter(pk=agent_id).first()
    bound = agent.placed_by if agent else {}
    return bool(
        Agent.objects.filter(pk=agent_id).update(
            state=Agent.State.ONLINE,
            version=hello.version[:40],
            can_rotate=hello.rotates,
            can_test=hello.tests,
            runs_scripts=hello.scripts,
            host=hello.host[:255],
            unverified_labels={key: value for key, value in hello.labels.items() if bound.get(key) != value},
            slots=msgspec.to_builtins(hello.slots),
            server_slots=hello.server_slots,
            cpu_count=hello.cpu_count,
            memory_bytes=hello.memory_bytes,
            environment=_found(hello.environment),
            seen_at=now or timezone.now(),
        )
    )


def _found(environment: Environment) -> dict[str, str]:
    """The reported environment, with values truncated to a readable length."""
    texts: dict[str, str] = msgspec.to_builtins(environment)
    return {name: text[:MOST_CHARACTERS] for name, text in texts.items() if text}


def agent_disconnected(agent_id: int, *, now: datetime | None = None) -> bool:
    """Record that the agent's socket has ended. False if it was offline already."""
    online = Agent.objects.filter(pk=agent_id, state=Agent.State.ONLINE)
    return bool(online.update(state=Agent.State.OFFLINE, seen_at=now or timezone.now()))


def agents_online(agent_ids: Collection[int]) -> int:
    """Record that these agents are online; returns how many of them were offline in the database."""
    return Agent.objects.filter(pk__in=agent_ids, state=Agent.State.OFFLINE).update(state=Agent.State.ONLINE)
