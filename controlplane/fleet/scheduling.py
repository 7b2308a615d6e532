"""Cordons, drains and opens machines, and stores the moves of a drain."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from statistics import median
from typing import Final

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from controlplane.fleet.models import Agent, Move, Reservation
from controlplane.protocol.orders import Role
from controlplane.scheduling.draining import OPEN_STAGES, SERVER_MOVE_S, WORKER_MOVE_S, Stage

MOST_REASON: Final = 300
MEASURED: Final = 20
"""Number of latest moves that determine the expected time of another one."""

SHOWN_FOR: Final = timedelta(minutes=10)
"""How long a move is shown after its end."""


CHANGED: Final = ("scheduling", "scheduling_since", "scheduling_reason", "scheduling_by", "scheduling_window")


class SchedulingRefused(Exception):
    """The machine is in that state already; the text says why and what to do."""


@transaction.atomic
def scheduling_set(
    *,
    agent_id: int,
    to: Agent.Scheduling,
    actor: str,
    reason: str = "",
    window: int | None = None,
    now: datetime | None = None,
) -> Agent:
    """Cordon, drain or open the machine; if for a maintenance ``window``, its end opens the machine.

    Raises:
        SchedulingRefused: if the machine is in that state already.
    """
    now = now or timezone.now()
    agent = Agent.objects.select_for_update().get(pk=agent_id)
    if agent.scheduling == to:
        since = f" since {agent.scheduling_since:%Y-%m-%d %H:%M} UTC" if agent.scheduling_since else ""
        by = f" by {agent.scheduling_by}" if agent.scheduling_by else ""
        raise SchedulingRefused(f"agent {agent.name!r} is {in_words(agent)}{since}{by}")
    agent.scheduling, agent.scheduling_since = to, now
    agent.scheduling_reason, agent.scheduling_by = reason[:MOST_REASON], actor[:150]
    agent.scheduling_window = window
    agent.save(update_fields=[*CHANGED])
    if to != Agent.Scheduling.DRAINING:
        moves_drop(agent_id)
    return agent


def in_words(agent: Agent) -> str:
    """The state as text for the end of a sentence."""
    words = {Agent.Scheduling.OPEN: "open to new processes", Agent.Scheduling.CORDONED: "cordoned"}
    return words.get(Agent.Scheduling(agent.scheduling), "being drained")


def moves_drop(agent_id: int) -> None:
    """End a drain: processes without a request to leave stay. Others have left, and come
    back: their moves continue.
    """
    Move.objects.filter(agent=agent_id, ended_at=None, stage__in=(Stage.STAYS, Stage.ADDING)).delete()


def draining() -> QuerySet[Agent]:
    """Machines that are being drained, or have unfinished moves."""
    moving = Q(moves__ended_at=None, moves__isnull=False)
    return Agent.objects.filter(Q(scheduling=Agent.Scheduling.DRAINING) | moving).distinct().order_by("id")


def held_slots(agent_id: int) -> int:
    """Slots of the machine that jobs hold."""
    return Reservation.objects.filter(agent=agent_id).count()


def open_moves(agents: Iterable[int]) -> QuerySet[Move]:
    """Moves that have not ended."""
    return Move.objects.filter(agent__in=agents, stage__in=OPEN_STAGES, ended_at=None).order_by(
        "job_id", "-role", "index"
    )


def shown_moves(agent: Agent, now: datetime) -> Sequence[Move]:
    """Moves of the machine's current drain, and moves that ended recently."""
    rows = Move.objects.filter(agent=agent).order_by("job_id", "-role", "index", "-pk")
    return [row for row in rows if row.ended_at is None or now - row.ended_at < SHOWN_FOR]


def move_seconds(role: Role) -> float:
    """Expected seconds of a move: the median of the latest ones, or a constant before the first."""
    ended = Move.objects.filter(role=role, stage=Stage.MOVED, ended_at__isnull=False).order_by("-ended_at")
    took = [(row.ended_at - row.began_at).total_seconds() for row in ended[:MEASURED] if row.ended_at]
    return median(took) if took else (WORKER_MOVE_S if role == "worker" else SERVER_MOVE_S)
