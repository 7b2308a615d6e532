"""The machine of a process, also after it was removed: the process keeps what it needs of it."""

from typing import Any, Final

from django.db.models import Q

from controlplane.fleet.models import Agent
from controlplane.fleet.removed_machines import Machine
from controlplane.jobs.models import Process

ON_MACHINES: Final = Q(agent__isnull=False) | Q(machine__isnull=False)
"""Processes whose machine is known; others are ranks of a launcher."""


def machine_of(process: Process) -> Machine | None:
    """The machine on which the process runs or ran; None for a rank of a launcher."""
    if process.agent is not None:
        return Machine.of(process.agent)
    return Machine.stored(process.machine) if process.machine is not None else None


def machine_name(process: Process) -> str:
    """The name of its machine, or the one that it reported when it started; empty if neither is known."""
    found = machine_of(process)
    return found.name if found is not None else str(process.environment.get("machine", ""))


def keep_machine(instance: Agent, **_: Any) -> None:
    """Store a machine that is about to be removed with its processes, however it is removed."""
    Process.objects.filter(agent=instance).update(machine=Machine.of(instance).document)
