"""Executes requests for machine tests."""

from http import HTTPStatus

from django.db import transaction

from controlplane.api.actions import NO_ANSWER
from controlplane.api.problems import Problem
from controlplane.fleet.machine_tests import PreflightRefused, Sees, preflight_request, preflight_withdraw
from controlplane.fleet.models import Agent, MachineTest
from controlplane.jobs.models import Job
from controlplane.jobs.services import audit
from controlplane.jobs.viewing import limits, visible
from controlplane.runtime import machine_tests, ticks
from controlplane.runtime.redis import shared


def request_test(*, agent: Agent, actor: str, force: bool = False) -> MachineTest:
    """Start a test of the machine.

    Raises:
        Problem: if the machine cannot be tested now, or Redis does not answer.
    """
    subject = f"agent {agent.name}"
    try:
        client = shared()
    except RuntimeError as error:  # before anything is written
        raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, f"{agent.name} was not tested: {error}") from None
    try:
        with transaction.atomic():  # no request without its audit entry
            row = preflight_request(agent=agent, actor=actor, force=force, sees=_seen())
            detail = {"machine": agent.name, "test": row.pk} | ({"forced": True} if row.forced else {})
            audit(actor=actor, action="agent-test", subject=subject, detail=detail)
    except PreflightRefused as refused:
        raise Problem(HTTPStatus.CONFLICT, str(refused)) from None
    try:
        machine_tests.notify(client, row)
        ticks.publish(client, fleet=True)
    except NO_ANSWER as error:
        with transaction.atomic():
            preflight_withdraw(row.pk)
            withdrawn = {"machine": agent.name, "test": row.pk, "reason": "Redis did not answer"}
            audit(actor="control plane", action="agent-test-withdrawn", subject=subject, detail=withdrawn)
        raise Problem(
            HTTPStatus.SERVICE_UNAVAILABLE,
            f"{agent.name} was not tested: Redis does not answer ({error}); try again",
        ) from error
    return row


def _seen() -> Sees:
    """The tests that the current user may see."""
    if limits() is None:
        return Sees()
    return Sees(
        machine=lambda number: visible(Agent.objects.filter(pk=number)).exists(),
        job=lambda number: visible(Job.objects.filter(pk=number)).exists(),
    )
