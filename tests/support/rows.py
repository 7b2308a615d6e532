"""Rows and documents that several folders of tests begin with."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from controlplane.core.events import Assignment
from controlplane.fleet.models import Agent
from controlplane.fleet.reservations import reserve_slots
from controlplane.fleet.selectors import slots_now
from controlplane.fleet.services import agent_connected, token_create, token_redeem
from controlplane.jobs.models import Job
from controlplane.jobs.services import job_submit
from controlplane.protocol.messages import AgentHello, SlotOffer
from controlplane.protocol.spec import Emulation
from controlplane.scheduling.queueing import Outcome, SlotRequest, plan

SPEC: dict[str, Any] = {
    "name": "digits",
    "workload": {"name": "softmax-regression", "dataset": "digits"},
    "workers": 2,
    "servers": 1,
    "batch_size": 64,
    "synchronization": {"batching": {"name": "lb-bsp-cpu", "predictor": "ema"}},
    "stop": {"iterations": 100},
    "seed": 7,
}


def hello(name: str = "m", *, slots: int | list[SlotOffer] = 2, server_slots: int = 1, **more: Any) -> AgentHello:
    """What a machine says that offers these slots, or so many unemulated ones."""
    fields: dict[str, Any] = {
        "number": 1,
        "name": name,
        "version": "0.1.0",
        "host": "10.0.0.7",
        "slots": [SlotOffer() for _ in range(slots)] if isinstance(slots, int) else slots,
        "server_slots": server_slots,
        "labels": {},
        "cpu_count": 8,
        "memory_bytes": 2**34,
    }
    return AgentHello(**fields | more)


def emulated(*speeds: float) -> list[SlotOffer]:
    """Slots of machines of these speeds, in samples per second."""
    return [SlotOffer(emulate=Emulation(samples_per_second=speed)) for speed in speeds]


def online_agent(name: str = "m", *, labels: Mapping[str, str] = MappingProxyType({}), **offer: Any) -> Agent:
    """A machine that has joined, on a token with these labels, and is here."""
    token, _ = token_create(labels=labels, name=name)
    enrolment = token_redeem(token=token, name=name)
    agent_connected(enrolment.agent, hello(name, **offer))
    return Agent.objects.get(pk=enrolment.agent)


def submitted_job(user: Any, **spec: Any) -> Job:
    """A job that waits for its slots."""
    return job_submit(document=SPEC | spec, user=user).job


def reserve(job: int, labels: dict[str, str], *, workers: int, servers: int) -> list[Assignment] | None:
    """Slots for this job as if no other waited; None where there are too few."""
    ask = SlotRequest(job=job, workers=workers, least=workers, servers=servers, labels=labels)
    [verdict] = plan([ask], slots_now().offers, now=0.0)
    takes = verdict.takes if verdict.outcome is Outcome.STARTS else ()
    return reserve_slots(job, takes, enough=workers + servers)
