"""Renews credentials of agents long before they expire, over the agents' connections."""

import structlog
from django.db import transaction

from controlplane.fleet.credentials import renewals_request
from controlplane.fleet.models import Agent
from controlplane.jobs.services import audit
from controlplane.runtime import names, ticks
from controlplane.runtime.redis import Client, shared

logger = structlog.get_logger(__name__)


def renew_credentials(client: Client | None = None) -> list[str]:
    """Request due renewals; returns the agents' names. If a gateway cannot be notified, it is due again in an hour."""
    client = client or shared()
    with transaction.atomic():  # a renewal that cannot be audited is not executed
        due = renewals_request()
        for agent in due:
            _record(agent)
    for agent in due:
        client.publish(names.agent_rotation(agent.pk), b"")
        logger.info("credential renewal requested", agent=agent.name)
    if due:
        ticks.publish(client, fleet=True)
    return [agent.name for agent in due]


def _record(agent: Agent) -> None:
    ends = agent.credential_expires_at
    detail = {"machine": agent.name, "expires_at": f"{ends:%Y-%m-%d %H:%M} UTC" if ends else "never"}
    audit(actor="control plane", action="agent-renew", subject=f"agent {agent.name}", detail=detail)
