"""Maintenance windows and labels of machines: set by users, applied by a periodic task."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from controlplane.fleet.models import Agent, MaintenanceWindow
from controlplane.fleet.scheduling import SchedulingRefused, scheduling_set
from controlplane.scheduling import maintenance

STATES: Final[Mapping[str, Any]] = {
    Agent.Scheduling.OPEN: "open",
    Agent.Scheduling.CORDONED: "cordon",
    Agent.Scheduling.DRAINING: "drain",
}
BACK: Final[Mapping[str, Agent.Scheduling]] = {word: Agent.Scheduling(state) for state, word in STATES.items()}
MOST: Final = 100
"""Most windows of one machine that have not ended."""


class WindowRefused(Exception):
    """The window is not possible; the text says why and what to do."""


def planned(agent: Agent) -> QuerySet[MaintenanceWindow]:
    """Windows of the machine that have not ended, the next first."""
    return MaintenanceWindow.objects.filter(agent=agent, over_at=None).order_by("begins_at", "pk")


@transaction.atomic
def window_create(
    *,
    agent: Agent,
    begins_at: datetime,
    ends_at: datetime,
    action: str,
    lead_s: int,
    reason: str,
    actor: str,
    now: datetime | None = None,
) -> MaintenanceWindow:
    """Plan a window.

    Raises:
        WindowRefused: if it ends before it begins, is over, or the machine has too many.
    """
    if ends_at <= begins_at:
        raise WindowRefused(f"ends_at: found {ends_at:%Y-%m-%d %H:%M} UTC, expected a time after begins_at")
    if ends_at <= (now or timezone.now()):
        raise WindowRefused(f"ends_at: found {ends_at:%Y-%m-%d %H:%M} UTC, expected a time in the future")
    if planned(agent).count() >= MOST:
        raise WindowRefused(f"agent {agent.name!r} has {MOST} windows, the limit: cancel some first")
    fields = {"begins_at": begins_at, "ends_at": ends_at, "action": action, "lead_s": lead_s, "reason": reason}
    return MaintenanceWindow.objects.create(agent=agent, created_by=actor[:150], **fields)


@transaction.atomic
def window_cancel(*, window: MaintenanceWindow, actor: str, now: datetime | None = None) -> bool:
    """End the window now, and open the machine if it closed it. False if it has ended already."""
    now = now or timezone.now()
    if not MaintenanceWindow.objects.filter(pk=window.pk, over_at=None).update(over_at=now):
        return False
    agent = Agent.objects.select_for_update().get(pk=window.agent_id)
    if agent.scheduling_window == window.pk:
        scheduling_set(agent_id=agent.pk, to=Agent.Scheduling.OPEN, actor=actor, now=now)
    return True


def windows_keep(now: datetime) -> list[tuple[Agent, str]]:
    """Close and open machines according to their windows; returns each changed machine with its change."""
    agents = Agent.objects.filter(windows__over_at=None, windows__isnull=False).distinct().order_by("pk")
    done = []
    for agent in agents:
        if (to := _keep(agent.pk, now)) is not None:
            done.append((agent, to))
    return done


@transaction.atomic
def _keep(agent_id: int, now: datetime) -> str | None:
    agent = Agent.objects.select_for_update().get(pk=agent_id)
    rows = {row.pk: row for row in planned(agent)}
    windows = tuple(_window(row) for row in rows.values())
    state = STATES[Agent.Scheduling(agent.scheduling)]
    machine = maintenance.Machine(state=state, closed_by=agent.scheduling_window, windows=windows)
    found = maintenance.change(machine, now.timestamp())
    if found is None:
        return None
    MaintenanceWindow.objects.filter(pk__in=found.begun).update(applied_at=now)
    MaintenanceWindow.objects.filter(pk__in=found.ended).update(over_at=now)
    if found.to is None or found.to == state:
        return None
    row = rows.get(found.window or 0)
    reason = row.reason if row else "the maintenance window is over" if found.to == "open" else agent.scheduling_reason
    try:
        scheduling_set(
            agent_id=agent_id,
            to=BACK[found.to],
            actor="maintenance window",
            reason=reason,
            window=found.window,
            now=now,
        )
    except SchedulingRefused:  # it is in that state already
        return None
    return found.to


def _window(row: MaintenanceWindow) -> maintenance.Window:
    return maintenance.Window(
        number=row.pk,
        begins=row.begins_at.timestamp() - row.lead_s,
        ends=row.ends_at.timestamp(),
        action="drain" if row.action == "drain" else "cordon",
        applied=row.applied_at is not None,
    )


class LabelsRefused(Exception):
    """The labels are not possible; the text says why and what to do."""


@transaction.atomic
def labels_set(*, agent_id: int, labels: Mapping[str, str], most: int) -> Agent:
    """Set the labels of the machine beside its token's.

    Raises:
        LabelsRefused: if one has a key of the token's, or there are too many.
    """
    agent = Agent.objects.select_for_update().get(pk=agent_id)
    if bound := sorted(set(labels) & set(agent.labels)):
        key = bound[0]
        raise LabelsRefused(
            f"labels: found {key}={labels[key]}, expected another key: {key}={agent.labels[key]} is from the enrolment "
            "token and changes only when the machine joins again with another one"
        )
    if len(labels) + len(agent.labels) > most:
        raise LabelsRefused(
            f"labels: found {len(labels) + len(agent.labels)} with the token's, expected at most {most}"
        )
    agent.added_labels = dict(labels)
    agent.save(update_fields=["added_labels"])
    return agent
