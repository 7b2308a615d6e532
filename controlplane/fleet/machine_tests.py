"""Tests of machines: which machine may be tested, the state of each test, and its result.

Every step is one conditional write or one short transaction, so that repeated messages have no effect.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from secrets import token_hex
from typing import Any, Final

import msgspec
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from controlplane.fleet.credentials import rejoining
from controlplane.fleet.models import Agent, MachineTest, Reservation
from controlplane.protocol.machine_tests import MOST_FAR_ENDS, TEST_LIMIT_S, Listening, MachineTested

State = MachineTest.State

ANSWER_LIMIT: Final = timedelta(seconds=5)
"""How long to wait for the far ends of links; then the test begins without the missing ones."""

LIMIT: Final = timedelta(seconds=TEST_LIMIT_S + 30)
"""A test without a result this long after its request is lost."""

KEPT: Final = 20
"""Number of latest tests to keep per machine."""

MOST_FAILURE: Final = 1_000


class PreflightRefused(Exception):
    """The machine cannot be tested now; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Sees:
    """The machines and jobs that the requesting user may see in messages."""

    machine: Callable[[int], bool] = lambda _: True
    job: Callable[[int], bool] = lambda _: True


@transaction.atomic
def preflight_request(
    *, agent: Agent, actor: str, force: bool = False, now: datetime | None = None, sees: Sees | None = None
) -> MachineTest:
    """Request a test of the machine, with links to up to ``MOST_FAR_ENDS`` machines that run servers.

    Raises:
        PreflightRefused: if it is offline, cannot be tested, is being tested, is the far end of another test, or runs
            processes of jobs and ``force`` is not given.
    """
    now = now or timezone.now()
    held = Reservation.objects.filter(agent=agent)
    _check(agent, held, sees or Sees(), force=force)
    try:
        with transaction.atomic():
            row = MachineTest.objects.create(
                agent=agent,
                nonce=token_hex(16),
                requested_by=actor[:150],
                requested_at=now,
                forced=held.exists(),
                far_ends=[_far_end(each) for each in _far_ends(agent)],
            )
    except IntegrityError:
        raise PreflightRefused(f"a test of agent {agent.name!r} has just begun: wait for its end") from None
    old = MachineTest.objects.filter(agent=agent).order_by("-pk").values_list("pk", flat=True)[KEPT:]
    MachineTest.objects.filter(pk__in=list(old)).delete()
    return row


def preflight_withdraw(test_id: int) -> None:
    """Delete a test that was not announced to any agent."""
    MachineTest.objects.filter(pk=test_id, state=State.STARTING).delete()


def preflights_of(agent: Agent) -> QuerySet[MachineTest]:
    """Tests of the machine, the latest first."""
    return MachineTest.objects.filter(agent=agent).order_by("-pk")


def preflights_to_begin(agent_id: int, *, now: datetime | None = None) -> QuerySet[MachineTest]:
    """Tests of this machine that can begin: every far end listens, has refused, or has timed out."""
    now = now or timezone.now()
    found = MachineTest.objects.filter(agent=agent_id, state=State.STARTING).select_related("agent")
    ready = [row.pk for row in found if now - row.requested_at >= ANSWER_LIMIT or not _unanswered(row)]
    return found.filter(pk__in=ready)


def preflights_to_listen_for(agent_id: int) -> list[tuple[MachineTest, int]]:
    """Tests of other machines that need this one as a far end, each with its index there."""
    rows = MachineTest.objects.filter(state=State.STARTING).exclude(agent=agent_id)
    return [
        (row, index)
        for row in rows
        for index, each in enumerate(row.far_ends)
        if each["agent"] == agent_id and each["port"] is None and not each["failure"]
    ]


def preflight_began(test_id: int) -> bool:
    """Record that the order of the test is sent; False if it was sent before."""
    return bool(MachineTest.objects.filter(pk=test_id, state=State.STARTING).update(state=State.RUNNING))


@transaction.atomic
def far_end_answered(agent_id: int, answer: Listening) -> MachineTest | None:
    """Record where a far end listens, or why not; returns the test unless that was known."""
    row = MachineTest.objects.select_for_update().filter(pk=answer.test, state=State.STARTING).first()
    mine = [each for each in row.far_ends if each["agent"] == agent_id] if row else []
    if row is None or not mine or mine[0]["port"] is not None or mine[0]["failure"]:
        return None
    mine[0]["port"] = answer.port
    if answer.port is None:
        mine[0]["failure"] = answer.failure[:MOST_FAILURE] or "it does not listen"
    row.save(update_fields=["far_ends"])
    return row


def preflight_ended(agent_id: int, result: MachineTested, *, now: datetime | None = None) -> bool:
    """Record the result; False if the test had ended, or belongs to another machine."""
    row = MachineTest.objects.filter(pk=result.test, agent=agent_id, ended_at=None).first()
    if row is None:
        return False
    measured = {name: value for name, value in msgspec.to_builtins(result).items() if value}
    for name in ("type", "number", "test", "failure"):
        measured.pop(name, None)
    unreached = [
        {"machine": each["name"], "failure": each["failure"] or f"it did not answer in {ANSWER_LIMIT.seconds} s"}
        for each in row.far_ends
        if each["port"] is None
    ]
    asked = {each["name"] for each in row.far_ends if each["port"] is not None}
    links = [link for link in measured.pop("links", []) if link["machine"] in asked]
    if links or unreached:
        measured["links"] = [*links, *unreached]
    note = ""
    if row.forced:
        note = "processes of jobs ran on the machine meanwhile"
    elif Reservation.objects.filter(agent=agent_id).exists():
        note = "a job was given slots of the machine meanwhile: test it again when it is free"
    fields: dict[str, Any] = {"result": measured, "note": note, "failure": result.failure[:MOST_FAILURE]}
    return _end(row.pk, State.FAILED if result.failure else State.SUCCEEDED, fields, now)


def preflights_lost(agent_id: int, known: list[int]) -> int:
    """End ordered tests that the agent does not know when it connects; returns their number."""
    running = MachineTest.objects.filter(agent=agent_id, state=State.RUNNING).exclude(pk__in=known)
    reason = "its agent came back without it: it was restarted, or never got the order; test the machine again"
    return sum(_end(row.pk, State.FAILED, {"failure": reason}, None) for row in running)


def preflights_overdue(now: datetime) -> tuple[list[MachineTest], list[MachineTest]]:
    """End lost tests; returns them, and the tests that can begin because a far end timed out."""
    reason = f"nothing came of it within {LIMIT.seconds} s: its agent is out of reach; test the machine again"
    lost = list(MachineTest.objects.filter(ended_at=None, requested_at__lte=now - LIMIT))
    ended = [row for row in lost if _end(row.pk, State.FAILED, {"failure": reason}, now)]
    late = MachineTest.objects.filter(state=State.STARTING, requested_at__lte=now - ANSWER_LIMIT)
    return ended, list(late)


def _end(pk: int, state: str, fields: dict[str, Any], now: datetime | None) -> bool:
    open_one = MachineTest.objects.filter(pk=pk, ended_at=None)
    return bool(open_one.update(state=state, ended_at=now or timezone.now(), **fields))


def _check(agent: Agent, held: QuerySet[Reservation], sees: Sees, *, force: bool) -> None:
    name = f"agent {agent.name!r}"
    if agent.state != Agent.State.ONLINE:
        raise PreflightRefused(f"{name} is offline: test it once it is back")
    if not agent.can_test:
        found = agent.version or "an unknown release"
        cure = f"update it there, and join again if its credential was lost, with a token from: {rejoining(agent.name)}"
        raise PreflightRefused(f"{name} runs {found}, which has no tests of machines: {cure}")
    is_tested = Q(agent=agent) | Q(agent__in=_testing_with(agent))
    running = MachineTest.objects.filter(is_tested, ended_at=None).select_related("agent").first()
    if running is not None:
        other = f"agent {running.agent.name!r}" if sees.machine(running.agent_id) else "another machine"
        whose = "it" if running.agent_id == agent.pk else f"{other}, with a link to it,"
        raise PreflightRefused(
            f"{name} cannot be tested: {whose} is being tested; wait for the end, at most {LIMIT.seconds} s"
        )
    if not force and (count := held.count()):
        numbers = held.order_by("job_id").values_list("job_id", flat=True).distinct()
        jobs = ", ".join([f"#{job}" for job in numbers if sees.job(job)][:3])
        raise PreflightRefused(
            f"{name} has {count} slot{'s' if count > 1 else ''} in use{f' (job {jobs})' if jobs else ''}, which a test"
            " would slow down: drain it first, or force the test"
        )


def _testing_with(agent: Agent) -> list[int]:
    """Machines that run a test with a link to this one."""
    rows = MachineTest.objects.filter(ended_at=None).values_list("agent", "far_ends")
    return [tested for tested, far_ends in rows if any(each["agent"] == agent.pk for each in far_ends)]


def _far_ends(agent: Agent) -> list[Agent]:
    """Machines for the far ends, of the same team or of none, and not being tested. Machines with servers are first."""
    others = Agent.objects.filter(state=Agent.State.ONLINE, can_test=True, server_slots__gt=0).exclude(pk=agent.pk)
    others = others.filter(Q(team=None) | Q(team=agent.team_id)).exclude(
        pk__in=MachineTest.objects.filter(ended_at=None).values("agent")
    )
    busy = set(Reservation.objects.filter(role="server").values_list("agent_id", flat=True))
    return sorted(others.order_by("pk"), key=lambda each: each.pk not in busy)[:MOST_FAR_ENDS]


def _far_end(agent: Agent) -> dict[str, Any]:
    return {"agent": agent.pk, "name": agent.name, "host": agent.host, "port": None, "failure": ""}


def _unanswered(row: MachineTest) -> bool:
    return any(each["port"] is None and not each["failure"] for each in row.far_ends)
