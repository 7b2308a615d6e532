"""Executes requests about a machine: cordon, drain, uncordon, labels, maintenance windows and removal."""

from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from django.db import transaction
from django.http import Http404

from controlplane.api.actions import NO_ANSWER
from controlplane.api.problems import Problem
from controlplane.api.serializers.fields import MOST_LABELS
from controlplane.fleet import windows
from controlplane.fleet.models import Agent, MaintenanceWindow
from controlplane.fleet.scheduling import SchedulingRefused, scheduling_set
from controlplane.fleet.services import RemovalRefused, agent_remove
from controlplane.jobs.services import audit
from controlplane.runtime import agents, queue, ticks
from controlplane.runtime.redis import shared

Scheduling = Agent.Scheduling
ACTIONS = {Scheduling.OPEN: "uncordon", Scheduling.CORDONED: "cordon", Scheduling.DRAINING: "drain"}


def schedule_machine(*, agent: Agent, to: Agent.Scheduling, actor: str, reason: str = "") -> None:
    """Cordon, drain or uncordon the machine.

    Raises:
        Problem: if it is in that state already.
    """
    try:
        with transaction.atomic():
            scheduling_set(agent_id=agent.pk, to=to, actor=actor, reason=reason)
            detail = {"machine": agent.name} | ({"reason": reason} if reason else {})
            audit(actor=actor, action=f"agent-{ACTIONS[to]}", subject=f"agent {agent.name}", detail=detail)
    except SchedulingRefused as refused:
        raise Problem(HTTPStatus.CONFLICT, str(refused)) from None
    note_change()


def note_change() -> None:
    """Notify pages, and have the scheduler check; without Redis it checks each second in any case."""
    try:
        ticks.publish(shared(), fleet=True)
        queue.request_schedule()
    except (*NO_ANSWER, RuntimeError):
        return


def label_machine(*, agent: Agent, labels: Mapping[str, str], actor: str) -> None:
    """Set the machine's additional labels.

    Raises:
        Problem: if one has a key of the token's.
    """
    before = dict(agent.added_labels)
    try:
        with transaction.atomic():
            windows.labels_set(agent_id=agent.pk, labels=labels, most=MOST_LABELS)
            detail = {"machine": agent.name, "from": before, "to": dict(labels)}
            audit(actor=actor, action="agent-labels", subject=f"agent {agent.name}", detail=detail)
    except windows.LabelsRefused as refused:
        raise Problem(HTTPStatus.CONFLICT, str(refused)) from None
    note_change()


def remove_machine(*, agent: Agent, actor: str) -> None:
    """Remove a machine that is offline and holds no slots.

    Raises:
        Http404: if it was removed meanwhile.
        Problem: if it is online, or holds slots.
    """
    number = agent.pk
    try:
        with transaction.atomic():
            agent_remove(number)
            audit(actor=actor, action="agent-remove", subject=f"agent {agent.name}")
    except Agent.DoesNotExist:
        raise Http404 from None
    except RemovalRefused as refused:
        raise Problem(HTTPStatus.CONFLICT, str(refused)) from None
    with suppress(*NO_ANSWER, RuntimeError):  # without Redis no gateway keeps a connection
        agents.close_connection(shared(), number)
    note_change()


def plan_window(*, agent: Agent, actor: str, **fields: Any) -> MaintenanceWindow:
    """Plan a maintenance window.

    Raises:
        Problem: if the window is not possible.
    """
    try:
        with transaction.atomic():
            row = windows.window_create(agent=agent, actor=actor, **fields)
            detail = {"machine": agent.name, "begins_at": f"{row.begins_at:%Y-%m-%d %H:%M} UTC", "action": row.action}
            audit(actor=actor, action="window-create", subject=f"agent {agent.name}", detail=detail)
    except windows.WindowRefused as refused:
        raise Problem(HTTPStatus.CONFLICT, str(refused)) from None
    note_change()
    return row


def cancel_window(*, window: MaintenanceWindow, actor: str) -> None:
    """End a window now.

    Raises:
        Problem: if it has ended already.
    """
    with transaction.atomic():
        if not windows.window_cancel(window=window, actor=actor):
            raise Problem(HTTPStatus.CONFLICT, f"maintenance window {window.pk} is over already")
        audit(actor=actor, action="window-cancel", subject=f"agent {window.agent.name}", detail={"window": window.pk})
    note_change()
