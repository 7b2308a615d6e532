"""Checks which machine a process belongs to: an agent may report only its own processes."""

import structlog
from channels.db import database_sync_to_async

from controlplane.gateway.hub import Hub
from controlplane.jobs.selectors import process_is_of
from controlplane.protocol.messages import ProcessName
from controlplane.runtime import agents

logger = structlog.get_logger(__name__)


async def runs_on(hub: Hub, agent: int, process: ProcessName) -> bool:
    """Whether the agent's machine runs or ran that process instance.

    The database may be behind, so the agent's orders and started processes are checked first.
    """
    if await agents.is_known(hub.client, agent, process) or await database_sync_to_async(process_is_of)(agent, process):
        return True
    logger.warning(
        "an agent named a process of another agent",
        agent=agent,
        job=process.job,
        role=process.role,
        index=process.index,
    )
    return False
