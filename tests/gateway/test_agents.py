"""Sockets of agents: what they are told to run, and what their news leads to."""

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.utils import timezone
from websockets.asyncio.client import ClientConnection, connect

from controlplane.api.machines import remove_machine
from controlplane.core.events import ProcessDied
from controlplane.fleet.credentials import REMOVED
from controlplane.fleet.models import Agent
from controlplane.gateway import close_codes, hub
from controlplane.jobs.models import Job
from controlplane.protocol.codec import encode, to_agent
from controlplane.protocol.messages import (
    AgentHeartbeat,
    AgentHello,
    Line,
    LogLines,
    ProcessEnded,
    ProcessName,
    ProcessStarted,
    SlotOffer,
)
from controlplane.protocol.orders import AgentOrders, ProcessOrder, Rejection
from controlplane.runtime import names, presence
from controlplane.runtime.reaper import remove_absent_agents
from controlplane.runtime.redis import Client
from tests.gateway.conftest import CREDENTIAL
from tests.gateway.transports import close_code, eventually
from tests.runtime.support import SPEC, logged

W0 = {"role": "worker", "index": 0, "instance": "w0.0.1"}


def knock(gateway: str, credential: str = CREDENTIAL) -> Any:
    headers = {"Authorization": f"Bearer {credential}"}
    return connect(f"{gateway}/ws/agent", additional_headers=headers, subprotocols=["paceline.v1"], compression=None)


def hello(*running: ProcessName) -> bytes:
    return encode(
        AgentHello(
            number=1,
            name="m1",
            version="0.1.0",
            host="127.0.0.1",
            slots=[SlotOffer()],
            server_slots=1,
            labels={"zone": "a"},
            cpu_count=4,
            memory_bytes=2**30,
            running=list(running),
        )
    )


def order_process(client: Client, agent: int, job: int) -> ProcessOrder:
    """As a commit of ``StartProcess`` would."""
    order = ProcessOrder(job=job, slot=0, key="00" * 32, spec=SPEC, **W0)
    client.hset(names.agent_processes(agent), f"{job}:worker:0", b"w0.0.1\0" + encode(order))
    client.publish(names.agent_moved(agent), b"")
    return order


async def orders(socket: ClientConnection) -> AgentOrders:
    async with asyncio.timeout(30):
        answer = to_agent.decode(await socket.recv(decode=False))
    assert isinstance(answer, AgentOrders)
    return answer


def deaths(client: Client, job: int) -> list[ProcessDied]:
    return [entry.event for entry in logged(client, job) if isinstance(entry.event, ProcessDied)]


async def state_of(agent: int) -> str:
    return await Agent.objects.values_list("state", flat=True).aget(pk=agent)


async def test_an_agent_receives_the_list_of_its_processes(gateway: str, client: Client, job: Job, agent: int) -> None:
    async with knock(gateway) as socket:
        await socket.send(hello())
        first = await orders(socket)
        order = order_process(client, agent, job.pk)
        second = await orders(socket)
    assert (first.processes, second.processes) == ([], [order])
    assert second.sequence > first.sequence


async def test_an_agent_is_online_from_its_hello_to_the_end_of_its_socket(
    gateway: str, client: Client, agent: int, enqueued: list[int]
) -> None:
    async with knock(gateway) as socket:
        assert await state_of(agent) == "offline"
        await socket.send(hello())
        await orders(socket)
        assert await state_of(agent) == "online"
        await eventually(lambda: enqueued == [0])  # the scheduler was asked to look
    async with asyncio.timeout(30):
        while await state_of(agent) != "offline":
            await asyncio.sleep(0.01)
    row = await Agent.objects.aget(pk=agent)
    assert (row.unverified_labels, row.server_slots, len(row.slots)) == ({"zone": "a"}, 1, 1)


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub, which checks credentials from time to time, does not."""
    monkeypatch.setattr(hub, "credentials_over", lambda _: {})


async def dismissal(socket: ClientConnection) -> tuple[str, int]:
    async with asyncio.timeout(30):
        answer = to_agent.decode(await socket.recv(decode=False))
    assert isinstance(answer, Rejection)
    return answer.detail, await close_code(socket)


@pytest.mark.usefixtures("unchecked")
async def test_the_connection_of_a_removed_machine_is_closed(gateway: str, agent: int) -> None:
    async with knock(gateway) as socket:
        await socket.send(hello())
        await orders(socket)
        await Agent.objects.filter(pk=agent).aupdate(state="offline")
        row = await Agent.objects.aget(pk=agent)
        await asyncio.to_thread(remove_machine, agent=row, actor="admin")
        assert await dismissal(socket) == (REMOVED, close_codes.UNAUTHORISED)


@pytest.mark.usefixtures("unchecked")
async def test_the_connection_of_a_machine_that_stayed_away_too_long_is_closed(gateway: str, agent: int) -> None:
    async with knock(gateway) as socket:
        await socket.send(hello())
        await orders(socket)
        long_ago = timezone.now() - timedelta(hours=2)
        away = {"state": "offline", "seen_at": long_ago, "remove_after": timedelta(hours=1)}
        await Agent.objects.filter(pk=agent).aupdate(**away)
        assert await asyncio.to_thread(remove_absent_agents) == ["m1"]
        assert await dismissal(socket) == (REMOVED, close_codes.UNAUTHORISED)


@pytest.mark.usefixtures("unchecked")
async def test_a_machine_that_was_removed_since_its_handshake_is_not_greeted(
    gateway: str, agent: int, enqueued: list[int]
) -> None:
    async with knock(gateway) as socket:
        await Agent.objects.filter(pk=agent).adelete()
        await socket.send(hello())
        assert await dismissal(socket) == (REMOVED, close_codes.UNAUTHORISED)
    assert enqueued == []


async def test_an_agent_that_offers_too_many_slots_is_refused_with_the_maximum(
    gateway: str, client: Client, agent: int
) -> None:
    greedy = hello().replace(b"\xacserver_slots\x01", b"\xacserver_slots" + msgspec.msgpack.encode(2_000_000))
    async with knock(gateway) as socket, asyncio.timeout(30):
        await socket.send(greedy)
        refusal = to_agent.decode(await socket.recv(decode=False))
    assert isinstance(refusal, Rejection)
    assert (refusal.code, refusal.detail.rpartition(": ")[2]) == (
        "malformed",
        "Expected `int` <= 1024 - at `$.server_slots`",
    )
    assert await state_of(agent) == "offline"
    assert not await Agent.objects.filter(server_slots__gt=0).aexists()


async def test_a_process_that_ended_has_died_and_is_ordered_no_longer(
    gateway: str, client: Client, job: Job, agent: int
) -> None:
    order_process(client, agent, job.pk)
    name = ProcessName(job=job.pk, **W0)
    async with knock(gateway) as socket:
        await socket.send(hello())
        await orders(socket)
        await socket.send(encode(ProcessStarted(number=2, process=name, pid=17)))
        assert (await orders(socket)).durable == 2
        for _ in range(2):  # said again, as after a reconnect
            await socket.send(
                encode(ProcessEnded(number=3, process=name, status=-9, tail="killed", out_of_memory=True))
            )
        last = await orders(socket)
    assert (last.durable, last.processes) == (3, [])
    assert deaths(client, job.pk) == [ProcessDied(status=-9, detail="killed", out_of_memory=True, **W0)]


async def test_the_end_of_another_machines_process_is_refused_and_its_job_continues(
    gateway: str, client: Client, job: Job, agent: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Even where its instance is known: an agent that was taken over ends no jobs but its own."""
    other = (await Agent.objects.acreate(name="m2", credential_digest="d")).pk
    order = order_process(client, other, job.pk)
    before, theirs = logged(client, job.pk), ProcessName(job=job.pk, **W0)
    async with knock(gateway) as socket:
        await socket.send(hello(theirs))
        await orders(socket)
        for number, said in enumerate(
            (
                ProcessEnded(number=2, process=theirs, status=1, tail="forged"),
                ProcessStarted(number=3, process=theirs, pid=1),
                ProcessEnded(number=4, process=theirs, status=1, tail="forged"),
            ),
            start=2,
        ):
            await socket.send(encode(said))
            refusal = to_agent.decode(await socket.recv(decode=False))
            assert refusal == Rejection(
                code="foreign", number=number, detail=f"worker 0 of job {job.pk} does not run on this machine"
            )
            assert (await orders(socket)).processes == []
    assert logged(client, job.pk) == before
    assert client.hvals(names.agent_processes(other)) == [b"w0.0.1\0" + encode(order)]
    told = [record.msg for record in caplog.records if "of another agent" in str(record.msg)]
    assert [(each["agent"], each["job"]) for each in told] == [(agent, job.pk)] * 3


async def test_a_process_that_was_stopped_before_history_knew_it_may_still_be_reported_to_have_ended(
    gateway: str, client: Client, job: Job, agent: int
) -> None:
    order_process(client, agent, job.pk)
    name = ProcessName(job=job.pk, **W0)
    async with knock(gateway) as socket:
        await socket.send(hello())
        await orders(socket)
        await socket.send(encode(ProcessStarted(number=2, process=name, pid=17)))
        await orders(socket)
    client.delete(names.agent_processes(agent))  # as StopProcess does, while its agent is away
    async with knock(gateway) as socket:
        await socket.send(hello(name))
        await orders(socket)
        await socket.send(encode(ProcessEnded(number=2, process=name, status=-15)))
        await orders(socket)
    assert deaths(client, job.pk) == [ProcessDied(status=-15, **W0)]


async def test_what_an_agent_lost_by_restarting_has_died(gateway: str, client: Client, job: Job, agent: int) -> None:
    order_process(client, agent, job.pk)
    name = ProcessName(job=job.pk, **W0)
    async with knock(gateway) as socket:
        await socket.send(hello())
        await orders(socket)
        await socket.send(encode(ProcessStarted(number=2, process=name, pid=17)))
        await orders(socket)
    async with knock(gateway) as socket:
        await socket.send(hello(name))
        assert len((await orders(socket)).processes) == 1, "it still runs it"
    async with knock(gateway) as socket:
        await socket.send(hello())
        assert (await orders(socket)).processes == []
    assert deaths(client, job.pk) == [ProcessDied(status=-1, detail="its agent restarted without it", **W0)]


def _measured(found: dict[int, presence.LastHeartbeat]) -> dict[int, presence.LastHeartbeat]:
    """Those of which a load is known: the hello alone is a sign of life, too."""
    return {agent: heartbeat for agent, heartbeat in found.items() if heartbeat.load}


async def test_the_load_of_a_machine_is_in_redis(gateway: str, client: Client, agent: int) -> None:
    async with knock(gateway) as socket:
        await socket.send(hello())
        await socket.send(encode(AgentHeartbeat(cpu=0.5, memory=0.25, network_out=10.0)))
        found = await eventually(lambda: _measured(presence.agents_now(client)))
    load = {"cpu": 0.5, "memory": 0.25, "network_out": 10.0}
    assert {number: sign.load for number, sign in found.items()} == {agent: load}


async def test_a_message_before_hello_is_refused(gateway: str, client: Client, job: Job, agent: int) -> None:
    async with knock(gateway) as socket:
        await socket.send(encode(ProcessEnded(number=2, process=ProcessName(job=job.pk, **W0), status=0)))
        answer = to_agent.decode(await socket.recv(decode=False))
    assert answer == Rejection(code="unexpected", detail="the first message of a connection is hello", number=2)
    assert deaths(client, job.pk) == []


async def test_a_newer_connection_of_an_agent_replaces_the_older(gateway: str, client: Client, agent: int) -> None:
    async with knock(gateway) as first:
        await first.send(hello())
        await orders(first)
        async with knock(gateway) as second:
            await second.send(hello())
            await orders(second)
            assert await close_code(first) == 4409
            assert await state_of(agent) == "online"


@pytest.mark.parametrize("credential", ["", "x" * 43])
async def test_a_stranger_is_not_let_in(gateway: str, client: Client, agent: int, credential: str) -> None:
    async with knock(gateway, credential) as socket:
        assert await close_code(socket) == 4401


async def test_lines_of_its_own_processes_are_kept_and_those_of_others_are_not(
    gateway: str, client: Client, job: Job, agent: int
) -> None:
    order_process(client, agent, job.pk)
    mine, foreign = ProcessName(job=job.pk, **W0), ProcessName(job=job.pk, role="worker", index=1, instance="w1.0.1")
    async with knock(gateway) as socket:
        await socket.send(hello())
        await socket.send(encode(LogLines(process=foreign, lines=[Line(level="info", text="not mine")])))
        await socket.send(encode(LogLines(process=mine, lines=[Line(level="error", text="mine")], dropped=3)))
        await eventually(lambda: client.xlen(names.lines(job.pk)))
    ((_, entry),) = client.xrange(names.lines(job.pk))
    assert (b"mine" in entry[b"l"], b"not mine" in entry[b"l"], entry[b"before"]) == (True, False, b"0")
    assert client.get(names.lines_count(job.pk)) == b"4"
