"""Database writes about agents' credentials, each with an audit entry. An audit entry never contains a secret."""

from django.db import transaction

from controlplane.fleet.credentials import (
    Admission,
    agent_admitted,
    credential_kept,
    credential_not_kept,
    is_outstanding,
)
from controlplane.fleet.models import Agent
from controlplane.jobs.services import audit
from controlplane.protocol.messages import CredentialKept
from controlplane.runtime import ticks
from controlplane.runtime.redis import shared


def admit(credential: str) -> Admission | None:
    """The agent with this credential, or None. Connecting with the new credential completes its rotation."""
    if not is_outstanding(credential):
        return agent_admitted(credential)
    with transaction.atomic():
        admission = agent_admitted(credential)
        if admission is not None and admission.rotated:
            _note(admission.agent.pk, "agent-rotated", {"by": "coming back with the new credential"})
    return admission


def settle(agent: int, answer: CredentialKept) -> None:
    """Record whether the agent stored its new credential."""
    with transaction.atomic():
        if answer.failure:
            if credential_not_kept(agent, answer.digest, answer.failure):
                _note(agent, "agent-rotate-failed", {"reason": answer.failure[:200]})
        elif credential_kept(agent, answer.digest):
            _note(agent, "agent-rotated", {"by": "acknowledging the new credential"})
    ticks.publish(shared(), fleet=True)


def _note(agent: int, action: str, detail: dict[str, str]) -> None:
    name = Agent.objects.values_list("name", flat=True).get(pk=agent)
    audit(actor=f"agent {name}", action=action, subject=f"agent {name}", detail=detail)
