"""A test of a machine over the sockets of two agents: who is told what, and when."""

import asyncio
from typing import Any

import pytest
from msgspec import structs
from websockets.asyncio.client import ClientConnection

from controlplane.fleet.machine_tests import preflight_request
from controlplane.fleet.models import Agent, MachineTest
from controlplane.fleet.selectors import digest
from controlplane.protocol.codec import encode, from_agent, to_agent
from controlplane.protocol.keys import data_key
from controlplane.protocol.machine_tests import Listening, ListenOrder, MachineTested, MachineTestOrder
from controlplane.protocol.messages import AgentHello
from controlplane.runtime import machine_tests
from controlplane.runtime.redis import Client
from tests.gateway.test_agents import hello, knock, orders

OTHER = "o" * 43


def greeting(*testing: int) -> bytes:
    said = from_agent.decode(hello())
    assert isinstance(said, AgentHello)
    return encode(structs.replace(said, tests=True, testing=list(testing)))


@pytest.fixture
def far(agent: int) -> int:
    return Agent.objects.create(name="m2", credential_digest=digest(OTHER)).pk


async def next_order(socket: ClientConnection) -> Any:
    """The next order of a test; orders of processes may come before it."""
    async with asyncio.timeout(30):
        while True:
            told = to_agent.decode(await socket.recv(decode=False))
            if isinstance(told, ListenOrder | MachineTestOrder):
                return told


async def ask(client: Client, agent: int) -> MachineTest:
    """As REST does."""
    row = await asyncio.to_thread(
        lambda: preflight_request(agent=Agent.objects.get(pk=agent), actor="ann", force=False)
    )
    machine_tests.notify(client, row)
    return row


async def until_ended(row: MachineTest) -> MachineTest:
    async with asyncio.timeout(30):
        while row.ended_at is None:
            await asyncio.sleep(0.01)
            await row.arefresh_from_db()
    return row


async def test_the_far_end_listens_first_and_both_share_a_key_of_the_test(
    gateway: str, client: Client, agent: int, far: int
) -> None:
    async with knock(gateway) as tested, knock(gateway, OTHER) as listening:
        for socket in (tested, listening):
            await socket.send(greeting())
            await orders(socket)
        row = await ask(client, agent)
        listen = await next_order(listening)
        assert (type(listen), listen.test, listen.index) == (ListenOrder, row.pk, 0)
        await listening.send(encode(Listening(number=2, test=row.pk, port=4711)))
        order = await next_order(tested)
        [far_end] = order.far_ends
        assert (order.test, far_end.machine, far_end.address.host, far_end.address.port) == (
            row.pk,
            "m2",
            "127.0.0.1",
            4711,
        )
        assert far_end.address.key == data_key(bytes.fromhex(listen.key), 0, order.instance)
        assert far_end.address.instance == listen.instance
        assert order.authority == listen.authority != b""
        await tested.send(encode(MachineTested(number=2, test=row.pk, cpu_flops=1e11, seconds=3.0)))
        await until_ended(row)
    assert (row.state, row.result["cpu_flops"]) == ("succeeded", 1e11)


async def test_an_agent_that_is_back_with_its_test_continues_and_one_without_has_lost_it(
    gateway: str, client: Client, agent: int
) -> None:
    async with knock(gateway) as socket:
        await socket.send(greeting())
        await orders(socket)
        row = await ask(client, agent)
        assert (await next_order(socket)).far_ends == []
    async with knock(gateway) as socket:
        await socket.send(greeting(row.pk))
        await orders(socket)
        await row.arefresh_from_db()
        assert row.state == "running"
    async with knock(gateway) as socket:
        await socket.send(greeting())
        await orders(socket)
        await until_ended(row)
    assert row.failure.startswith("its agent came back without it")


async def test_a_test_that_was_requested_while_the_agent_reconnected_is_ordered_then(
    gateway: str, client: Client, agent: int
) -> None:
    async with knock(gateway) as socket:
        await socket.send(greeting())
        await orders(socket)
        row = await asyncio.to_thread(
            lambda: preflight_request(agent=Agent.objects.get(pk=agent), actor="ann", force=False)
        )
    async with knock(gateway) as socket:
        await socket.send(greeting())
        assert (await next_order(socket)).test == row.pk
