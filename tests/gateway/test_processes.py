"""Conversations of workers and servers, by websocket and by relay: who gets in, what is refused, what the log holds."""

import asyncio
from typing import Any

import msgspec
import pytest

from controlplane.core.events import ConnectionLost, Entry, JobSubmitted, ServerMessageReceived, WorkerMessageReceived
from controlplane.gateway import close_codes
from controlplane.jobs.models import Job
from controlplane.protocol.codec import MAX_FRAME_BYTES, encode, to_server, to_worker
from controlplane.protocol.messages import Heartbeat, ServerHello, WorkerHello
from controlplane.protocol.orders import Durable, Rejection, Role
from controlplane.runtime import names, presence
from controlplane.runtime.durable import publish_numbers
from controlplane.runtime.executor import Frame, encode_frames
from controlplane.runtime.redis import Client
from tests.gateway.transports import Enter, close_code, eventually, knock
from tests.runtime.support import logged, orders_numbered, report

HELLO = WorkerHello(number=1, parameter_count=650, sample_count=1437)


def heard(client: Client, job: int) -> list[Any]:
    """The log, without its beginning and without what the control plane says of itself."""
    events = [entry.event for entry in logged(client, job)]
    return [
        event for event in events if isinstance(event, WorkerMessageReceived | ServerMessageReceived | ConnectionLost)
    ]


async def test_what_a_worker_reports_is_in_the_log_once_and_in_order(enter: Enter, client: Client, job: Job) -> None:
    async with enter(job.pk) as socket:
        await socket.send(encode(HELLO))
        for number in range(2, 50):
            await socket.send(encode(report(number).message))
        await eventually(lambda: len(heard(client, job.pk)) == 49)
    await eventually(lambda: len(heard(client, job.pk)) == 50)
    assert heard(client, job.pk) == [
        WorkerMessageReceived(rank=0, instance="w0.0.1", message=HELLO),
        *(report(number) for number in range(2, 50)),
        ConnectionLost(role="worker", index=0, instance="w0.0.1"),
    ]


async def test_while_the_log_is_long_senders_are_throttled_and_lose_nothing(
    enter: Enter, client: Client, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "LONG_LOG", 20)
    async with enter(job.pk) as socket:
        await socket.send(encode(HELLO))
        for number in range(2, 31):
            await socket.send(encode(report(number).message))
        await eventually(lambda: len(heard(client, job.pk)) == 30)
        for number in range(31, 40):
            await socket.send(encode(report(number).message))
        told = to_worker.decode(await socket.recv(decode=False))
        assert isinstance(told, Rejection)
        assert (told.code, told.number) == ("slow-down", len(heard(client, job.pk)) + 1)
        client.xtrim(names.events(job.pk), maxlen=1, approximate=False)
        monkeypatch.setattr(names, "LONG_LOG", 100)
        for number in range(told.number or 0, 40):
            await socket.send(encode(report(number).message))
        await eventually(lambda: heard(client, job.pk)[-1:] == [report(39)])
        numbers = [event.message.number for event in heard(client, job.pk)[1:]]
        assert numbers == list(range(numbers[0], 40))


async def test_what_a_server_reports_is_in_the_log(enter: Enter, client: Client, job: Job) -> None:
    hello = ServerHello(number=1, host="127.0.0.1", port=4000, tensor_sizes=[640, 10])
    async with enter(job.pk, role="server", index=1, instance="s1.0.1") as socket:
        await socket.send(encode(hello))
        await eventually(lambda: heard(client, job.pk))
        assert heard(client, job.pk) == [ServerMessageReceived(index=1, instance="s1.0.1", message=hello)]


async def test_each_socket_gets_its_own_frames(enter: Enter, client: Client, job: Job) -> None:
    async with enter(job.pk) as first, enter(job.pk, index=1, instance="w1.0.1") as second:
        await eventually(lambda: client.hlen(names.connections(job.pk)) == 2)
        orders = [orders_numbered(rank) for rank in (0, 1)]
        frames = [Frame("worker", r, f"w{r}.0.1", "orders", encode(orders[r])) for r in (0, 1)]
        await eventually(lambda: client.publish(names.frames(job.pk), encode_frames(frames)))
        assert [to_worker.decode(await socket.recv(decode=False)) for socket in (first, second)] == orders


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        (("worker", 1, "w0.0.1"), "a foreign rank"),
        (("worker", 0, "w0.0.2"), "another life"),
        (("server", 0, "w0.0.1"), "another role"),
    ],
)
async def test_a_key_opens_only_the_socket_of_its_own_instance(
    enter: Enter, client: Client, job: Job, claims: tuple[Role, int, str], why: str
) -> None:
    async with enter(job.pk, claims=claims) as socket:
        assert await close_code(socket) == 4401, why
    assert heard(client, job.pk) == []


async def test_a_job_that_does_not_exist_lets_no_one_in(enter: Enter, job: Job) -> None:
    async with enter(job.pk + 1) as socket:
        assert await close_code(socket) == 4401


async def test_a_job_that_is_over_lets_no_one_in(enter: Enter, client: Client, job: Job) -> None:
    client.hset(names.engine(job.pk), "over", 1)
    async with enter(job.pk) as socket:
        assert await close_code(socket) == 4410


async def test_the_end_of_a_job_closes_sockets_that_still_send(enter: Enter, client: Client, job: Job) -> None:
    async with enter(job.pk) as socket:
        await eventually(lambda: client.hlen(names.connections(job.pk)))
        client.hset(names.engine(job.pk), "over", 1)
        await socket.send(encode(HELLO))
        assert await close_code(socket) == 4410
    assert heard(client, job.pk) == []


async def test_a_malformed_frame_is_refused_and_the_third_in_a_row_ends_it(
    enter: Enter, client: Client, job: Job
) -> None:
    async with enter(job.pk) as socket:
        for frame in (b"\xc1", "text", encode(HELLO), b"\x80", msgspec.msgpack.encode({"type": "report"})):
            await socket.send(frame)
        refused = [to_worker.decode(await socket.recv(decode=False)) for _ in range(4)]
        await socket.send(b"\xc1")
        assert await close_code(socket) == 4400
    assert [answer.code for answer in refused if isinstance(answer, Rejection)] == ["malformed"] * 4
    await eventually(lambda: len(heard(client, job.pk)) == 2)
    assert [type(event) for event in heard(client, job.pk)] == [WorkerMessageReceived, ConnectionLost]


async def test_an_oversized_frame_is_refused_and_ends_it(enter: Enter, client: Client, job: Job) -> None:
    async with enter(job.pk, role="server", instance="s0.0.1") as socket:
        await socket.send(b"\x00" * (MAX_FRAME_BYTES + 1))
        answer = to_server.decode(await socket.recv(decode=False))
        assert await close_code(socket) == 4413
    assert isinstance(answer, Rejection)
    assert (answer.code, answer.detail) == ("oversized", "message of 262145 bytes, at most 262144 are accepted")
    await eventually(lambda: heard(client, job.pk))
    assert [type(event) for event in heard(client, job.pk)] == [ConnectionLost]


async def test_another_protocol_is_refused(gateway: str, job: Job) -> None:
    async with knock(gateway, job.pk, protocol="paceline.v0") as socket:
        assert await close_code(socket) == 4400


async def test_a_second_connection_replaces_the_first_and_no_one_is_lost(
    enter: Enter, client: Client, job: Job
) -> None:
    async with enter(job.pk) as first:
        await eventually(lambda: client.hlen(names.connections(job.pk)))
        async with enter(job.pk) as second:
            assert await close_code(first) == 4409
            await second.send(encode(HELLO))
            await eventually(lambda: heard(client, job.pk))
            assert heard(client, job.pk) == [WorkerMessageReceived(rank=0, instance="w0.0.1", message=HELLO)]


async def test_heartbeats_change_nothing_but_the_last_seen_time(enter: Enter, client: Client, job: Job) -> None:
    async with enter(job.pk) as socket:
        await socket.send(encode(Heartbeat()))
        seen = await eventually(lambda: presence.last_seen(client, job.pk))
    seconds, _ = client.time()
    assert abs(seen["worker:0:w0.0.1"] - seconds * 1000) < 5_000
    assert not any(isinstance(event, WorkerMessageReceived) for event in heard(client, job.pk))


async def test_a_gateway_that_starts_records_it_in_every_live_log(enter: Enter, client: Client, job: Job) -> None:
    async with enter(job.pk):

        def kinds() -> list[Entry]:
            return [e for e in logged(client, job.pk) if not isinstance(e.event, JobSubmitted)]

        await eventually(kinds)
        assert [type(entry.event).__name__ for entry in kinds()] == ["ControlPlaneResumed"]


async def test_a_sender_learns_what_is_durable_when_it_connects_and_when_that_rises(
    enter: Enter, client: Client, job: Job
) -> None:
    publish_numbers(client, job.pk, {"w0.0.1": 3, "w1.0.1": 9})
    async with enter(job.pk) as socket:
        assert to_worker.decode(await socket.recv(decode=False)) == Durable(number=3)
        await eventually(lambda: client.hlen(names.connections(job.pk)))
        for number in (4, 5):
            publish_numbers(client, job.pk, {"w0.0.1": number})
        async with asyncio.timeout(30):
            while (told := to_worker.decode(await socket.recv(decode=False))) != Durable(number=5):
                assert told == Durable(number=4)


async def test_a_job_whose_log_is_lost_requests_its_processes_to_come_again(
    enter: Enter, client: Client, job: Job
) -> None:
    async with enter(job.pk) as socket:
        await eventually(lambda: client.hlen(names.connections(job.pk)))
        client.flushall()
        await socket.send(encode(HELLO))
        assert await close_code(socket) == 1013
    async with enter(job.pk) as socket:
        assert await close_code(socket) == 1013


async def test_a_log_that_may_have_lost_its_end_takes_no_messages_before_it_is_recovered(
    enter: Enter, client: Client, job: Job
) -> None:
    async with enter(job.pk) as socket:
        await socket.send(encode(HELLO))
        await eventually(lambda: heard(client, job.pk))
        client.hset(names.engine(job.pk), "run_id", "an earlier one")
        await socket.send(encode(report(2).message))
        assert await close_code(socket) == close_codes.TRY_AGAIN
    async with enter(job.pk) as socket:
        assert await close_code(socket) == close_codes.TRY_AGAIN
    said = [event for event in heard(client, job.pk) if isinstance(event, WorkerMessageReceived)]
    assert said == [WorkerMessageReceived(rank=0, instance="w0.0.1", message=HELLO)]
