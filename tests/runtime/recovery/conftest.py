"""A job that runs, as Redis and the database have it."""

import pytest
from django.contrib.auth.models import User

from controlplane.core.events import Assignment, ServerMessageReceived, SlotsAssigned, WorkerMessageReceived
from controlplane.fleet.models import Agent, Reservation
from controlplane.jobs.models import Job
from controlplane.protocol.messages import ServerHello, WorkerHello
from controlplane.protocol.spec import spec_document
from controlplane.runtime import log
from controlplane.runtime.coordinator import coordinate
from controlplane.runtime.engines import RealEngines
from controlplane.runtime.redis import Client
from controlplane.runtime.redis_identity import settle
from tests.runtime.recovery.support import copy_all
from tests.runtime.support import SPEC, Driver, submit


@pytest.fixture
def driver(client: Client, enqueued: list[int]) -> Driver:
    return Driver(client=client, kind=RealEngines(), enqueued=enqueued)


@pytest.fixture
def job(client: Client, driver: Driver) -> int:
    """A job with two workers and a server that run, as Redis and the database have it."""
    settle(client)
    agent = Agent.objects.create(name="m1", credential_digest="d").pk
    row = Job.objects.create(
        name="digits", spec=spec_document(SPEC), submitted_by=User.objects.create(username="ann"), key=b"k" * 32
    )
    submit(client, row.pk)
    places = [("worker", 0, 0), ("worker", 1, 1), ("server", 0, 0)]
    for role, index, slot in places:
        Reservation.objects.create(agent_id=agent, role=role, slot=slot, job_id=row.pk, index=index)
    told = [Assignment(role=role, index=index, agent=agent, slot=slot) for role, index, slot in places]  # type: ignore[arg-type]
    hello = WorkerHello(number=1, parameter_count=650, sample_count=1437)
    for event in (
        SlotsAssigned(assignments=told),
        ServerMessageReceived(
            index=0,
            instance="s0.0.1",
            message=ServerHello(number=1, host="127.0.0.1", port=9, tensor_sizes=[640, 10]),
        ),
        *(WorkerMessageReceived(rank=rank, instance=f"w{rank}.0.1", message=hello) for rank in (0, 1)),
    ):
        log.append_event(row.pk, event, client=client)
    coordinate(row.pk, driver.around())
    copy_all(client)
    settle(client)
    return row.pk
