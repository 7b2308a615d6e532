"""Applies maintenance windows: cordons, drains and uncordons machines, every second."""

from datetime import datetime

import structlog

from controlplane.fleet.windows import windows_keep
from controlplane.jobs.services import audit
from controlplane.runtime import ticks
from controlplane.runtime.redis import shared

logger = structlog.get_logger(__name__)
ACTIONS = {"open": "agent-uncordon", "cordon": "agent-cordon", "drain": "agent-drain"}


def keep_windows(now: datetime) -> list[str]:
    """Apply the windows; returns the names of changed machines."""
    done = windows_keep(now)
    for agent, to in done:
        detail = {"machine": agent.name}
        audit(actor="maintenance window", action=ACTIONS[to], subject=f"agent {agent.name}", detail=detail)
        logger.info("maintenance window", machine=agent.name, to=to)
    if done:
        ticks.publish(shared(), fleet=True)
    return [agent.name for agent, _ in done]
