"""New credentials over the sockets of agents: real websockets, from the asking to the old one's end."""

import asyncio

import pytest
from msgspec import structs
from websockets.asyncio.client import ClientConnection

from controlplane.fleet.credentials import agent_admitted, rotation, rotation_request
from controlplane.fleet.models import Agent
from controlplane.fleet.selectors import digest
from controlplane.jobs.models import AuditEntry
from controlplane.protocol.codec import encode, from_agent, to_agent
from controlplane.protocol.messages import AgentHello, CredentialKept
from controlplane.protocol.orders import AgentOrders, CredentialIssued
from controlplane.runtime import names
from controlplane.runtime.redis import Client
from tests.gateway.conftest import CREDENTIAL
from tests.gateway.test_agents import hello, knock, orders
from tests.gateway.test_processes import close_code


def greeting() -> bytes:
    said = from_agent.decode(hello())
    assert isinstance(said, AgentHello)
    return encode(structs.replace(said, rotates=True))


async def ask(client: Client, agent: int) -> None:
    """As REST does."""
    await asyncio.to_thread(rotation_request, agent)
    client.publish(names.agent_rotation(agent), b"")


async def secret(socket: ClientConnection) -> str:
    """The next credential that comes; orders may come before it."""
    async with asyncio.timeout(30):
        while not isinstance(told := to_agent.decode(await socket.recv(decode=False)), CredentialIssued):
            assert isinstance(told, AgentOrders)
    return told.secret


async def taken(socket: ClientConnection, number: int) -> None:
    """Until it has been said that the message was taken."""
    while (await orders(socket)).durable < number:
        pass


def kept(number: int, new: str, failure: str = "") -> bytes:
    return encode(CredentialKept(number=number, digest=digest(new), failure=failure))


async def refused(gateway: str, credential: str) -> bool:
    async with knock(gateway, credential) as socket:
        return await close_code(socket) == 4401


async def test_the_old_one_ends_with_the_acknowledgement(gateway: str, client: Client, agent: int) -> None:
    async with knock(gateway) as socket:
        await socket.send(greeting())
        await orders(socket)
        await ask(client, agent)
        new = await secret(socket)
        assert (await Agent.objects.aget(pk=agent)).credential_digest == digest(CREDENTIAL)
        await socket.send(kept(2, new))
        await taken(socket, 2)
    assert await refused(gateway, CREDENTIAL)
    async with knock(gateway, new) as socket:
        await socket.send(greeting())
        await orders(socket)
    entries = [entry async for entry in AuditEntry.objects.values_list("actor", "action", "subject")]
    assert entries == [("agent m1", "agent-rotated", f"agent {agent}")]


async def test_one_that_kept_it_and_died_before_it_said_so_is_let_in_with_it(
    gateway: str, client: Client, agent: int
) -> None:
    async with knock(gateway) as socket:
        await socket.send(greeting())
        await orders(socket)
        await ask(client, agent)
        new = await secret(socket)
    async with knock(gateway, new) as socket:
        await socket.send(greeting())
        await orders(socket)
    assert await refused(gateway, CREDENTIAL)
    assert rotation(await Agent.objects.aget(pk=agent)).state == ""


async def test_one_that_died_before_it_kept_it_is_told_another_when_it_is_back(
    gateway: str, client: Client, agent: int
) -> None:
    async with knock(gateway) as socket:
        await socket.send(greeting())
        await orders(socket)
        await ask(client, agent)
        lost = await secret(socket)
    async with knock(gateway) as socket:
        await socket.send(greeting())
        new = await secret(socket)
        await socket.send(kept(2, new))
        await taken(socket, 2)
    assert new != lost
    assert await refused(gateway, lost)
    assert await refused(gateway, CREDENTIAL)


async def test_one_that_cannot_keep_it_says_so_and_can_be_asked_again(
    gateway: str, client: Client, agent: int, capfd: pytest.CaptureFixture[str]
) -> None:
    async with knock(gateway) as socket:
        await socket.send(greeting())
        await orders(socket)
        await ask(client, agent)
        first = await secret(socket)
        await socket.send(kept(2, first, "the disk is full"))
        await taken(socket, 2)
        row = await Agent.objects.aget(pk=agent)
        assert (row.rotation_failure, row.credential_digest, row.next_digest) == (
            "the disk is full",
            digest(CREDENTIAL),
            None,
        )
        await ask(client, agent)
        second = await secret(socket)
        await socket.send(kept(3, second))
        await taken(socket, 3)
    assert await asyncio.to_thread(agent_admitted, second) is not None
    written = "".join(capfd.readouterr())
    assert first not in written
    assert second not in written
    entries = [entry async for entry in AuditEntry.objects.values_list("action", "detail")]
    assert [action for action, _ in entries] == ["agent-rotate-failed", "agent-rotated"]
    assert second not in str(entries)


async def test_an_agent_of_an_earlier_release_is_told_none(gateway: str, client: Client, agent: int) -> None:
    async with knock(gateway) as socket:
        await socket.send(greeting())
        await orders(socket)
        await asyncio.to_thread(rotation_request, agent)
    async with knock(gateway) as socket:
        await socket.send(hello())
        await orders(socket)
        client.publish(names.agent_rotation(agent), b"")
        client.publish(names.agent_moved(agent), b"")
        await orders(socket)  # no credential before them
    assert (await Agent.objects.aget(pk=agent)).next_digest is None
