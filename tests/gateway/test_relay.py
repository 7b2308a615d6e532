"""Relays of machines: whose processes they carry, what ends a channel and what the relay, and what is batched."""

import asyncio
from typing import Any, cast

import pytest
from asgiref.sync import sync_to_async
from django.utils import timezone
from websockets.asyncio.client import connect

from controlplane.core.events import ConnectionLost, WorkerMessageReceived
from controlplane.fleet.models import Agent
from controlplane.fleet.selectors import digest
from controlplane.gateway import close_codes, relay
from controlplane.gateway import sockets as gateway_sockets
from controlplane.gateway.cancellation import end
from controlplane.jobs.models import Job
from controlplane.protocol.codec import MAX_FRAME_BYTES, encode, to_worker
from controlplane.protocol.messages import Heartbeat
from controlplane.protocol.orders import Rejection
from controlplane.protocol.relay import MAX_BATCH_BYTES, MAX_CHANNELS, TAKES_BEATS, to_relay
from controlplane.runtime import log, names, presence
from controlplane.runtime.executor import Frame, encode_frames
from controlplane.runtime.redis import Client
from tests.gateway.conftest import CREDENTIAL
from tests.gateway.test_processes import HELLO, heard
from tests.gateway.transports import Conversation, Machine, close_code, eventually, knock, opening, runs_here
from tests.runtime.support import orders_numbered, report

FOREIGN_CREDENTIAL = "f" * 43


def worker(machine: Machine, client: Client, agent: int, job: int, rank: int = 0) -> Conversation:
    """A channel of a worker that the machine of that agent runs."""
    instance = f"w{rank}.0.1"
    runs_here(client, agent, job, role="worker", index=rank, instance=instance)
    return machine.channel(opening(job, index=rank, instance=instance))


async def test_an_unknown_credential_opens_no_relay(gateway: str, agent: int) -> None:
    async with Machine(gateway, "x" * 43) as machine:
        assert await close_code(machine.socket) == close_codes.UNAUTHORISED


async def test_a_relay_ends_with_the_credential_of_its_machine(gateway: str, agent: int, machine: Machine) -> None:
    await Agent.objects.filter(pk=agent).aupdate(credential_expires_at=timezone.now())
    assert await close_code(machine.socket) == close_codes.UNAUTHORISED


async def test_a_process_of_another_machine_is_refused_and_may_come_by_itself(
    gateway: str, client: Client, job: Job, agent: int, machine: Machine
) -> None:
    other = await Agent.objects.acreate(name="m2", credential_digest=digest(FOREIGN_CREDENTIAL))
    async with worker(machine, client, agent, job.pk) as mine:
        await mine.send(encode(HELLO))
        async with Machine(gateway, FOREIGN_CREDENTIAL) as foreign, foreign.channel(opening(job.pk)) as stolen:
            assert await close_code(stolen) == close_codes.FOREIGN
        await eventually(lambda: len(heard(client, job.pk)) == 1)
        assert mine.close_code is None
    assert other.pk != agent


@pytest.mark.parametrize("number", [1, 7])
async def test_frames_of_a_channel_that_was_never_opened_end_the_relay(machine: Machine, number: int) -> None:
    await machine.send(frames=[(number, encode(HELLO))])
    assert await close_code(machine.socket) == close_codes.MALFORMED


async def test_the_handshake_says_that_reports_of_live_processes_are_taken(machine: Machine) -> None:
    assert machine.socket.response is not None
    assert TAKES_BEATS in machine.socket.response.headers


async def test_a_channel_that_was_never_opened_is_not_alive(machine: Machine) -> None:
    await machine.send(alive=[1])
    assert await close_code(machine.socket) == close_codes.MALFORMED


async def test_processes_are_seen_when_their_relay_says_that_they_are_alive(
    machine: Machine, client: Client, agent: int, job: Job
) -> None:
    """From their first message on, as heartbeats count on a websocket."""
    async with worker(machine, client, agent, job.pk) as silent, worker(machine, client, agent, job.pk, 1) as mine:
        await mine.send(encode(HELLO))
        await eventually(lambda: presence.last_seen(client, job.pk))
        client.delete(names.presence(job.pk))
        await machine.send(alive=[silent.number, mine.number])
        await eventually(lambda: presence.last_seen(client, job.pk))
        assert presence.last_seen(client, job.pk).keys() == {"worker:1:w1.0.1"}
        await silent.send(encode(HELLO))
        await machine.send(alive=[silent.number])
        await eventually(lambda: len(presence.last_seen(client, job.pk)) == 2)


async def test_more_live_channels_than_there_can_be_end_the_relay(
    machine: Machine, client: Client, agent: int, job: Job
) -> None:
    async with worker(machine, client, agent, job.pk) as mine:
        await machine.send(alive=[mine.number] * (MAX_CHANNELS + 1))
        assert await close_code(machine.socket) == close_codes.MALFORMED


async def test_a_channel_that_has_just_ended_may_still_be_reported_alive(
    machine: Machine, client: Client, agent: int, job: Job
) -> None:
    async with worker(machine, client, agent, job.pk) as mine, worker(machine, client, agent, job.pk, 1) as ended:
        await ended.send(b"\0" * (MAX_FRAME_BYTES + 1))
        assert await close_code(ended) == close_codes.OVERSIZED
        await machine.send(alive=[ended.number])
        await mine.send(encode(HELLO))
        await eventually(lambda: presence.last_seen(client, job.pk))
    assert presence.last_seen(client, job.pk).keys() == {"worker:0:w0.0.1"}


async def test_a_channel_that_is_opened_twice_ends_the_relay(
    machine: Machine, client: Client, agent: int, job: Job
) -> None:
    async with worker(machine, client, agent, job.pk) as mine:
        await mine.send(encode(HELLO))
        await eventually(lambda: heard(client, job.pk))
        await machine.send(opened=[(mine.number, encode(opening(job.pk)))])
        assert await close_code(machine.socket) == close_codes.MALFORMED
    lost = ConnectionLost(role="worker", index=0, instance="w0.0.1")
    await eventually(lambda: heard(client, job.pk)[-1] == lost)


@pytest.mark.parametrize("frame", [b"", b"\xc1", "text", encode(HELLO), b"\x93\x90\x91\x92\x00\xc4\x00\x90"])
async def test_what_is_no_batch_ends_the_relay(machine: Machine, frame: Any) -> None:
    await machine.socket.send(frame)
    assert await close_code(machine.socket) == close_codes.MALFORMED


async def test_an_oversized_batch_ends_the_relay(machine: Machine) -> None:
    await machine.socket.send(b"\0" * (MAX_BATCH_BYTES + 1))
    assert await close_code(machine.socket) == close_codes.OVERSIZED


async def test_an_opening_that_names_no_process_ends_its_channel_alone(
    machine: Machine, client: Client, agent: int, job: Job
) -> None:
    async with worker(machine, client, agent, job.pk) as mine:
        nobody = machine.channel(opening(job.pk))
        await machine.send(opened=[(nobody.number, b"\x80")])
        assert await close_code(nobody) == close_codes.MALFORMED
        await mine.send(encode(HELLO))
        await eventually(lambda: heard(client, job.pk))


async def test_late_frames_of_a_channel_that_has_ended_are_ignored(
    machine: Machine, client: Client, agent: int, job: Job
) -> None:
    async with worker(machine, client, agent, job.pk, 1) as mine, worker(machine, client, agent, job.pk) as ended:
        await ended.send(b"\0" * (MAX_FRAME_BYTES + 1))
        assert await close_code(ended) == close_codes.OVERSIZED
        answer = to_worker.decode(await ended.recv())
        assert isinstance(answer, Rejection)
        assert answer.code == "oversized"
        await machine.send(frames=[(ended.number, encode(HELLO))], closed=[(ended.number, 0)])
        await mine.send(encode(HELLO))
        await eventually(lambda: [event for event in heard(client, job.pk) if isinstance(event, WorkerMessageReceived)])
        said = [event.rank for event in heard(client, job.pk) if isinstance(event, WorkerMessageReceived)]
        assert said == [1]


async def test_a_channel_that_is_never_read_fast_enough_ends_and_its_neighbours_do_not(
    machine: Machine, client: Client, agent: int, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_sockets, "MACHINE_PER_S", 100.0)
    monkeypatch.setattr(relay, "MOST_UNREAD_FRAMES", 50)
    async with worker(machine, client, agent, job.pk) as flooding, worker(machine, client, agent, job.pk, 1) as mine:
        await machine.send(frames=[(flooding.number, encode(HELLO))] * 1_000)
        assert await close_code(flooding) == close_codes.FLOOD
        await mine.send(encode(HELLO))
        await eventually(lambda: [event for event in heard(client, job.pk) if getattr(event, "rank", None) == 1])


async def test_a_relay_is_not_read_while_too_much_waits_on_its_channels(
    machine: Machine, client: Client, agent: int, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "MOST_UNREAD_OF_RELAY", 1_000)
    async with worker(machine, client, agent, job.pk) as mine:
        await mine.send(encode(HELLO))
        for number in range(2, 200):
            await mine.send(encode(report(number).message))
        await eventually(lambda: len(heard(client, job.pk)) == 199)
    await eventually(lambda: len(heard(client, job.pk)) == 200)


async def test_more_channels_than_a_machine_has_processes_are_refused(
    machine: Machine, client: Client, agent: int, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "MAX_CHANNELS", 1)
    async with worker(machine, client, agent, job.pk) as mine:
        async with worker(machine, client, agent, job.pk, 1) as more:
            assert await close_code(more) == close_codes.FLOOD
        await mine.send(encode(HELLO))
        await eventually(lambda: heard(client, job.pk))


async def test_the_end_of_a_relay_makes_each_of_its_processes_unreachable(
    gateway: str, client: Client, agent: int, job: Job
) -> None:
    async with Machine(gateway, CREDENTIAL) as machine:
        for rank in (0, 1):
            channel = worker(machine, client, agent, job.pk, rank)
            await channel.__aenter__()
            await channel.send(encode(HELLO))
        await eventually(lambda: client.hlen(names.connections(job.pk)) == 2)
    await eventually(lambda: len(heard(client, job.pk)) == 4)
    lost = [event for event in heard(client, job.pk) if isinstance(event, ConnectionLost)]
    assert {event.index for event in lost} == {0, 1}
    assert client.hlen(names.connections(job.pk)) == 0


async def test_a_process_may_change_from_one_way_to_the_other_without_being_lost(
    gateway: str, client: Client, agent: int, job: Job, machine: Machine
) -> None:
    async with worker(machine, client, agent, job.pk) as relayed:
        await relayed.send(encode(HELLO))
        await eventually(lambda: heard(client, job.pk))
        async with knock(gateway, job.pk) as direct:
            assert await close_code(relayed) == close_codes.REPLACED
            await direct.send(encode(report(2).message))
            await eventually(lambda: len(heard(client, job.pk)) == 2)
            assert [type(event) for event in heard(client, job.pk)] == [WorkerMessageReceived] * 2


async def test_a_batch_is_appended_in_one_call(
    machine: Machine, client: Client, agent: int, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels = [worker(machine, client, agent, job.pk, rank) for rank in range(20)]
    for channel in channels:
        await channel.__aenter__()
        await channel.send(encode(HELLO))
    await eventually(lambda: len(heard(client, job.pk)) == 20)
    calls, begin = [], log.begin_append

    def noted(caller: Any, number: int, payloads: list[bytes], **named: Any) -> Any:
        calls.append(len(payloads))
        return begin(caller, number, payloads, **named)

    monkeypatch.setattr(log, "begin_append", noted)
    await machine.send(frames=[(channel.number, encode(report(2).message)) for channel in channels])
    await eventually(lambda: len(heard(client, job.pk)) == 40)
    assert calls == [20]


async def test_the_frames_of_one_commit_are_sent_as_one_batch(
    machine: Machine, client: Client, agent: int, job: Job
) -> None:
    channels = [worker(machine, client, agent, job.pk, rank) for rank in range(20)]
    for channel in channels:
        await channel.__aenter__()
        await channel.send(encode(Heartbeat()))
    await eventually(lambda: client.hlen(names.presence(job.pk)) == 20)  # all are read, and so can be written to
    before = len(machine.batches)
    frames = [Frame("worker", r, f"w{r}.0.1", "orders", encode(orders_numbered(r))) for r in range(20)]
    await eventually(lambda: client.publish(names.frames(job.pk), encode_frames(frames)))
    async with asyncio.timeout(30):
        told = [to_worker.decode(await channel.recv()) for channel in channels]
    assert told == [orders_numbered(rank) for rank in range(20)]
    assert len(machine.batches) == before + 1


async def test_newer_orders_replace_older_ones_while_a_batch_cannot_be_sent() -> None:
    asked, reads, sent = asyncio.Event(), asyncio.Event(), []

    async def receive() -> dict[str, Any]:
        return await asyncio.get_running_loop().create_future()

    async def send(message: dict[str, Any]) -> None:
        asked.set()
        await reads.wait()
        sent.append(to_relay.decode(message["bytes"]).frames)

    carrier = relay.Relay(cast(Any, None), 1, gateway_sockets.Socket(receive, send))
    channel = relay.Channel(1, carrier)
    tasks = [asyncio.create_task(carrier.serve()), asyncio.create_task(channel.socket.run(cast(Any, None)))]
    for number in range(1, 6):
        channel.socket.put(b"orders %d" % number, "orders")
        await asked.wait()
        await asyncio.sleep(0)
    channel.socket.put(b"placement", "placement")
    reads.set()
    async with asyncio.timeout(30):
        while sum(map(len, sent)) < 4:
            await asyncio.sleep(0)
    assert sent == [[(1, b"orders 1")], [(1, b"orders 2"), (1, b"orders 5"), (1, b"placement")]]
    await end(*tasks)


async def test_close_codes_of_one_channel_do_not_reach_another(
    machine: Machine, client: Client, agent: int, job: Job
) -> None:
    client.hset(names.engine(job.pk), "over", 1)
    async with worker(machine, client, agent, job.pk) as ended:
        assert await close_code(ended) == close_codes.JOB_OVER
    await sync_to_async(client.hset)(names.engine(job.pk), "over", 0)
    async with worker(machine, client, agent, job.pk, 1) as mine:
        await mine.send(encode(HELLO))
        await eventually(lambda: heard(client, job.pk))


async def test_a_relay_requires_the_subprotocol(gateway: str, agent: int) -> None:
    headers = {"Authorization": f"Bearer {CREDENTIAL}"}
    async with connect(f"{gateway}/ws/relay", additional_headers=headers, subprotocols=["paceline.v0"]) as socket:
        assert await close_code(socket) == close_codes.MALFORMED
