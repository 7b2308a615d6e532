"""Tests of machines over their agents' sockets: sends orders that are due, and records the answers."""

from django.db import Error as DatabaseError
from structlog import get_logger

from controlplane.fleet.machine_tests import far_end_answered, preflight_ended, preflights_lost
from controlplane.protocol.codec import encode
from controlplane.protocol.machine_tests import Listening, PreflightAnswer
from controlplane.protocol.messages import AgentHello
from controlplane.runtime import machine_tests, names, ticks
from controlplane.runtime.redis import shared

logger = get_logger(__name__)


def frames_due(agent: int) -> list[bytes]:
    """Orders for the agent, as frames; none while the database is unavailable."""
    try:
        return [encode(order) for order in machine_tests.orders_due(agent)]
    except DatabaseError as error:
        logger.warning("no test was ordered", agent=agent, why=str(error))
        return []


def greet(agent: int, hello: AgentHello) -> None:
    """End tests that the agent should be running but does not know."""
    preflights_lost(agent, hello.testing)


def settle(agent: int, answer: PreflightAnswer) -> None:
    """Record where the agent listens, or what it measured."""
    if isinstance(answer, Listening):
        test = far_end_answered(agent, answer)
        if test is not None:
            shared().publish(names.agent_test(test.agent_id), b"")
    elif preflight_ended(agent, answer):
        ticks.publish(shared(), fleet=True)
