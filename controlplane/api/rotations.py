"""Executes requests to rotate a machine's credential."""

from http import HTTPStatus

from django.contrib.auth.models import User
from django.db import transaction

from controlplane.api.actions import NO_ANSWER
from controlplane.api.problems import Problem
from controlplane.fleet.credentials import RotationRefused, rotation_request, rotation_withdraw
from controlplane.fleet.models import Agent
from controlplane.jobs import services
from controlplane.runtime import names, ticks
from controlplane.runtime.redis import shared


def rotate_credential(*, agent: Agent, user: User) -> None:
    """Request a new credential for the machine; it is pending until the machine has acknowledged it.

    Raises:
        Problem: if the machine is offline or accepts none, if one is pending already, or Redis does not answer.
    """
    subject = f"agent {agent.name}"
    try:
        with transaction.atomic():  # a request that cannot be audited is not executed
            outstanding = Agent.objects.values_list("next_digest", flat=True).get(pk=agent.pk)
            requested_at = rotation_request(agent.pk)
            services.audit(actor=user.get_username(), action="agent-rotate", subject=subject)
    except RotationRefused as refused:
        raise Problem(HTTPStatus.CONFLICT, str(refused)) from None
    try:
        shared().publish(names.agent_rotation(agent.pk), b"")
        ticks.publish(shared(), fleet=True)
    except NO_ANSWER as error:
        with transaction.atomic():
            withdrawn = rotation_withdraw(agent.pk, requested_at, outstanding)
            if withdrawn:
                why = {"reason": "Redis did not answer"}
                services.audit(actor="control plane", action="agent-rotate-withdrawn", subject=subject, detail=why)
        if withdrawn:
            raise Problem(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"the credential of {agent.name} was not rotated: Redis does not answer ({error}); try again",
            ) from error
