"""New credentials over the sockets of agents: real websockets, from the asking to the old one's end."""

import asyncio
from datetime import timedelta

import pytest
from django.utils import timezone
from msgspec import structs
from websockets.asyncio.client import ClientConnection

from controlplane.fleet.credentials import agent_admitted, rotation, rotation_request
from controlplane.fleet.models import Agent
from controlplane.fleet.selectors import digest
from controlplane.gateway.hub import get_hub
from controlplane.jobs.models import AuditEntry, Job, Process
from controlplane.protocol.codec import encode, from_agent, to_agent, to_worker
from controlplane.protocol.messages import AgentHello, CredentialKept
from controlplane.protocol.orders import AgentOrders, CredentialIssued, Rejection
from controlplane.runtime import names
from controlplane.runtime.credential_renewal import renew_credentials
from controlplane.runtime.redis import Client
from tests.gateway import test_processes as processes
from tests.gateway.conftest import CREDENTIAL
from tests.gateway.test_agents import hello, knock, orders, state_of
from tests.gateway.transports import close_code


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
    assert entries == [("agent m1", "agent-rotated", "agent m1")]


async def test_one_that_kept_it_and_died_before_it_reported_so_is_accepted_with_it(
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


async def test_a_machine_that_died_before_it_stored_a_credential_gets_another_on_return(
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


async def test_one_that_cannot_keep_it_reports_it_and_can_be_retried(
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


async def test_an_expired_credential_is_refused_with_the_cure(gateway: str, client: Client, agent: int) -> None:
    await Agent.objects.filter(pk=agent).aupdate(credential_expires_at=timezone.now())
    async with knock(gateway) as socket, asyncio.timeout(30):
        told = to_agent.decode(await socket.recv(decode=False))
        assert isinstance(told, Rejection)
        assert told.code == "unauthorised"
        assert "let it join again with a token, from: python manage.py enroll --name m1" in told.detail
        assert await close_code(socket) == 4401


async def test_a_connection_does_not_outlive_its_credential(gateway: str, client: Client, agent: int) -> None:
    async with knock(gateway) as socket, asyncio.timeout(30):
        await socket.send(greeting())
        await orders(socket)
        await Agent.objects.filter(pk=agent).aupdate(credential_expires_at=timezone.now())
        while isinstance(told := to_agent.decode(await socket.recv(decode=False)), AgentOrders):
            pass
        assert isinstance(told, Rejection)
        assert "let it join again with a token, from: python manage.py enroll --name m1" in told.detail
        assert await close_code(socket) == 4401
    async with asyncio.timeout(30):
        while await state_of(agent) != "offline":
            await asyncio.sleep(0.01)


async def started_on(agent: int, job: Job, instance: str = "w0.0.1") -> None:
    """The row of a worker that runs on that machine."""
    now = timezone.now()
    await Process.objects.acreate(
        job=job,
        role="worker",
        index=0,
        instance=instance,
        agent_id=agent,
        state="ready",
        state_since=now,
        started_at=now,
    )


async def test_processes_of_a_machine_do_not_outlive_its_credential(
    gateway: str, client: Client, agent: int, job: Job
) -> None:
    await started_on(agent, job)
    async with processes.knock(gateway, job.pk) as socket, processes.knock(gateway, job.pk, index=1) as other:
        await socket.send(encode(processes.HELLO))
        await processes.eventually(lambda: processes.heard(client, job.pk))
        await (await get_hub())._recheck()
        assert socket.close_code is None
        await Agent.objects.filter(pk=agent).aupdate(credential_expires_at=timezone.now())
        async with asyncio.timeout(30):
            told = to_worker.decode(await socket.recv(decode=False))
        assert isinstance(told, Rejection)
        assert "let it join again with a token, from: python manage.py enroll --name m1" in told.detail
        assert await close_code(socket) == 4401
        assert other.close_code is None, "it is not known to run on that machine"


async def test_a_process_of_a_machine_whose_credential_has_expired_is_not_let_in(
    gateway: str, client: Client, agent: int, job: Job
) -> None:
    await started_on(agent, job)
    await Agent.objects.filter(pk=agent).aupdate(credential_expires_at=timezone.now())
    async with processes.knock(gateway, job.pk) as socket:
        told = to_worker.decode(await socket.recv(decode=False))
        assert isinstance(told, Rejection)
        assert (
            "the machine on which this process was started is not allowed to connect: the credential of agent 'm1'"
            in (told.detail)
        )
        assert await close_code(socket) == 4401
    await Agent.objects.filter(pk=agent).aupdate(credential_expires_at=timezone.now() + timedelta(days=1))
    async with processes.knock(gateway, job.pk) as socket:
        await socket.send(encode(processes.HELLO))
        await processes.eventually(lambda: processes.heard(client, job.pk))


async def test_a_machine_whose_connection_carried_a_new_credential_stays(
    gateway: str, client: Client, agent: int
) -> None:
    async with knock(gateway) as socket:
        await socket.send(greeting())
        await orders(socket)
        await ask(client, agent)
        await socket.send(kept(2, await secret(socket)))
        await taken(socket, 2)
        await (await get_hub())._recheck()
        client.publish(names.agent_moved(agent), b"")
        await orders(socket)


async def test_a_credential_that_ends_soon_is_renewed_over_the_connection(
    gateway: str, client: Client, agent: int
) -> None:
    ends = timezone.now() + timedelta(days=3)
    async with knock(gateway) as socket:
        await socket.send(greeting())
        await orders(socket)
        await Agent.objects.filter(pk=agent).aupdate(credential_expires_at=ends)
        assert await asyncio.to_thread(renew_credentials, client) == ["m1"]
        new = await secret(socket)
        await socket.send(kept(2, new))
        await taken(socket, 2)
    row = await Agent.objects.aget(pk=agent)
    assert row.credential_digest == digest(new)
    assert row.credential_expires_at is not None
    assert row.credential_expires_at > ends + timedelta(days=80)
    entries = [entry async for entry in AuditEntry.objects.values_list("actor", "action")]
    assert entries == [("control plane", "agent-renew"), ("agent m1", "agent-rotated")]


async def test_an_agent_of_an_earlier_release_receives_none(gateway: str, client: Client, agent: int) -> None:
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
