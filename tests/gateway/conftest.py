"""The gateway behind a real uvicorn, over a real Redis; whatever it would enqueue is only noted."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import uvicorn
import uvloop
from channels.db import aclose_old_connections
from channels.routing import ProtocolTypeRouter, URLRouter
from django.contrib.auth.models import Group, User
from django.test import Client as Browser

from controlplane.fleet.models import Agent
from controlplane.fleet.selectors import digest
from controlplane.gateway.hub import close_hub
from controlplane.gateway.routing import websocket_urlpatterns
from controlplane.jobs.models import Job
from controlplane.jobs.sealing import seal
from controlplane.protocol.orders import Role
from controlplane.protocol.spec import spec_document
from controlplane.runtime import queue
from controlplane.runtime.redis import Client, connect
from controlplane.runtime.redis_identity import settle
from tests.gateway.transports import Enter, Machine, knock, opening, runs_here
from tests.runtime.support import SPEC, submit

CREDENTIAL = "c" * 43


def pytest_asyncio_loop_factories() -> dict[str, Any]:
    """The loop that uvicorn chooses in production: its transports are others than asyncio's."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def client(redis_url: str) -> Any:
    client = connect()
    yield client
    client.close()


@pytest.fixture
def enqueued(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    noted: list[int] = []
    monkeypatch.setattr(queue, "enqueue", noted.append)
    monkeypatch.setattr(queue, "request_schedule", lambda: noted.append(0))
    return noted


@pytest.fixture
def job(transactional_db: None, client: Client, enqueued: list[int]) -> Job:
    """A submitted job with a log, and with a key that tests know."""
    user = User.objects.create(username="ann")
    row = Job.objects.create(name="digits", spec=spec_document(SPEC), submitted_by=user, key=seal(b"k" * 32))
    submit(client, row.pk)
    return row


@pytest.fixture
def agent(transactional_db: None, client: Client) -> int:
    """A machine that has joined a control plane whose Redis is settled."""
    settle(client)
    return Agent.objects.create(name="m1", credential_digest=digest(CREDENTIAL)).pk


@pytest.fixture
def session(transactional_db: None) -> str:
    """The cookie of a viewer who has signed in."""
    browser = Browser()
    eve = User.objects.create(username="eve")
    eve.groups.add(Group.objects.get_or_create(name="viewer")[0])
    browser.force_login(eve)
    return browser.cookies["sessionid"].value


@pytest.fixture
async def gateway(transactional_db: None, client: Client, enqueued: list[int]) -> AsyncIterator[str]:
    """Where it listens, as ``ws://host:port``."""
    application = ProtocolTypeRouter({"websocket": URLRouter(websocket_urlpatterns)})
    config = uvicorn.Config(application, host="127.0.0.1", port=0, lifespan="off", log_level="warning")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve())
    while not server.started:
        await asyncio.sleep(0)
    host, port = server.servers[0].sockets[0].getsockname()
    try:
        yield f"ws://{host}:{port}"
    finally:
        server.should_exit = True
        await serving
        await close_hub()
        await aclose_old_connections()  # behind all queries: one that outlasts its test would fail those after it


@pytest.fixture
async def machine(gateway: str, agent: int) -> AsyncIterator[Machine]:
    """The relay of the machine of ``agent``."""
    async with Machine(gateway, CREDENTIAL) as connected:
        yield connected


@pytest.fixture(params=["websocket", "relay"])
def enter(request: pytest.FixtureRequest, gateway: str, client: Client) -> Enter:
    """How a process begins its conversation; the relay is that of the machine that runs it."""
    if request.param == "websocket":
        return partial(knock, gateway)
    machine, agent = request.getfixturevalue("machine"), request.getfixturevalue("agent")

    def enter(job: int, *, role: Role = "worker", index: int = 0, instance: str = "w0.0.1", **named: Any) -> Any:
        runs_here(client, agent, job, role=role, index=index, instance=instance)
        return machine.channel(opening(job, role=role, index=index, instance=instance, **named))

    return enter
