"""What the sockets of agents write about credentials, each with its line in the audit. No secret is ever in one."""

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
    """The agent that proves itself with it. One that comes with its new credential has kept that."""
    if not is_outstanding(credential):
        return agent_admitted(credential)
    with transaction.atomic():
        admission = agent_admitted(credential)
        if admission is not None and admission.rotated:
            _note(admission.agent.pk, "agent-rotated", {"by": "coming back with the new credential"})
    return admission


def settle(agent: int, said: CredentialKept) -> None:
    """The agent has kept its new credential, or could not."""
    with transaction.atomic():
        if said.failure:
            if credential_not_kept(agent, said.digest, said.failure):
                _note(agent, "agent-rotate-failed", {"reason": said.failure[:200]})
        elif credential_kept(agent, said.digest):
            _note(agent, "agent-rotated", {"by": "acknowledging the new credential"})
    ticks.publish(shared(), fleet=True)


def _note(agent: int, action: str, detail: dict[str, str]) -> None:
    name = Agent.objects.values_list("name", flat=True).get(pk=agent)
    audit(actor=f"agent {name}", action=action, subject=f"agent {agent}", detail=detail)
