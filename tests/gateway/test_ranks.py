"""Sockets of attached ranks: their job's token lets them in, and nothing else does."""

import asyncio
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from websockets.asyncio.client import ClientConnection, connect

from controlplane.core.events import ConnectionLost, WorkerMessageReceived
from controlplane.gateway import close_codes, rate_limiter
from controlplane.jobs.models import Job
from controlplane.jobs.tokens import token_issue, tokens_revoke
from controlplane.protocol.codec import encode, to_rank
from controlplane.protocol.messages import RankHello, WorkerHello
from controlplane.protocol.orders import Durable, Rejection
from controlplane.protocol.spec import parse_spec, spec_document
from controlplane.runtime import names
from controlplane.runtime.durable import publish_numbers
from controlplane.runtime.log import start_log
from controlplane.runtime.redis import Client
from tests.gateway.test_processes import heard
from tests.gateway.transports import close_code, eventually
from tests.runtime.support import report

ATTACHED = parse_spec({"name": "mine", "launch": "attached", "workers": 2, "batch_size": 32})
HELLO = RankHello(number=1, rank=0, world=2, batch_size=32, sample_count=1000, host="gpu-1", launcher="torchrun", pid=7)


def attached_job(client: Client) -> Job:
    user, _ = User.objects.get_or_create(username="ann")
    row = Job.objects.create(name="mine", spec=spec_document(ATTACHED), submitted_by=user, launch="attached")
    start_log(row.pk, ATTACHED)
    return row


@pytest.fixture
def mine(transactional_db: None, client: Client, enqueued: list[int]) -> Job:
    return attached_job(client)


@pytest.fixture
def token(mine: Job) -> str:
    return token_issue(job=mine, actor="ann")


def knock(
    gateway: str, job: int, token: str, *, rank: int = 0, instance: str = "r0-1f", protocol: str = "paceline.v1"
) -> Any:
    headers = {"Authorization": f"Bearer {token}", "X-Paceline-Instance": instance}
    return connect(
        f"{gateway}/ws/rank/{job}/{rank}", additional_headers=headers, subprotocols=[protocol], compression=None
    )


async def told(socket: ClientConnection) -> Any:
    async with asyncio.timeout(30):
        return to_rank.decode(await socket.recv(decode=False))


async def test_what_a_rank_reports_is_in_the_log_as_a_workers_message(
    gateway: str, client: Client, mine: Job, token: str
) -> None:
    async with knock(gateway, mine.pk, token) as socket:
        await socket.send(encode(HELLO))
        await socket.send(encode(report(2).message))
        await eventually(lambda: len(heard(client, mine.pk)) == 2)
    await eventually(lambda: len(heard(client, mine.pk)) == 3)
    assert heard(client, mine.pk) == [
        WorkerMessageReceived(rank=0, instance="r0-1f", message=HELLO),
        WorkerMessageReceived(rank=0, instance="r0-1f", message=report(2).message),
        ConnectionLost(role="worker", index=0, instance="r0-1f"),
    ]


async def test_one_token_serves_many_ranks_and_their_restarts(
    gateway: str, client: Client, mine: Job, token: str
) -> None:
    async with (
        knock(gateway, mine.pk, token) as first,
        knock(gateway, mine.pk, token, rank=1, instance="r1-2e") as second,
        knock(gateway, mine.pk, token, instance="r0-3d") as again,
    ):
        for socket in (first, second, again):
            await socket.send(encode(HELLO))
        await eventually(lambda: len(heard(client, mine.pk)) == 3)
    assert {event.instance for event in heard(client, mine.pk)} == {"r0-1f", "r1-2e", "r0-3d"}


@pytest.mark.parametrize("which", ["wrong", "none", "revoked", "replaced", "of another job"])
async def test_a_token_that_opens_nothing_is_refused_with_a_sentence(
    gateway: str, client: Client, mine: Job, token: str, which: str
) -> None:
    shown, sentence = {
        "wrong": ("plj_" + "x" * 43, "there is no such token"),
        "none": ("", "found no token"),
        "revoked": (token, "the token ended at"),
        "replaced": (token, "the token ended at"),
        "of another job": (token, "the token is of another job"),
    }[which]
    job = mine.pk
    if which == "revoked":
        await sync_to_async(tokens_revoke)(job=mine, actor="ann")
    elif which == "replaced":
        await sync_to_async(token_issue)(job=mine, actor="ann")
    elif which == "of another job":
        job = (await sync_to_async(attached_job)(client)).pk
    async with knock(gateway, job, shown) as socket:
        answer = await told(socket)
        assert await close_code(socket) == close_codes.UNAUTHORISED
    assert isinstance(answer, Rejection)
    assert answer.code == "unauthorised"
    assert sentence in answer.detail
    assert heard(client, job) == []


async def test_a_native_jobs_sockets_do_not_open_with_a_token(
    gateway: str, client: Client, job: Job, token: str
) -> None:
    async with knock(gateway, job.pk, token) as socket:
        assert isinstance(await told(socket), Rejection)
        assert await close_code(socket) == close_codes.UNAUTHORISED


@pytest.mark.parametrize("ends", ["revoked", "replaced"])
async def test_a_rank_whose_token_ends_is_requested_to_leave_and_given_the_reason(
    gateway: str, client: Client, mine: Job, token: str, ends: str
) -> None:
    async with knock(gateway, mine.pk, token) as socket:
        await socket.send(encode(HELLO))
        await eventually(lambda: heard(client, mine.pk))
        end = tokens_revoke if ends == "revoked" else token_issue
        await sync_to_async(end)(job=mine, actor="ann")
        answer = await told(socket)
        assert await close_code(socket) == close_codes.UNAUTHORISED
    assert isinstance(answer, Rejection)
    assert "start the script with the new one" in answer.detail


async def test_within_the_grace_of_a_rotation_ranks_stay_and_may_come_again(
    gateway: str, client: Client, mine: Job, token: str
) -> None:
    async with knock(gateway, mine.pk, token) as socket:
        await socket.send(encode(HELLO))
        await sync_to_async(token_issue)(job=mine, actor="ann", grace_s=600)
        async with knock(gateway, mine.pk, token, rank=1, instance="r1-2e") as second:
            await second.send(encode(HELLO))
            await eventually(lambda: len(heard(client, mine.pk)) == 2)
        assert socket.close_code is None


@pytest.mark.parametrize(("rank", "instance"), [(10_000, "r0"), (0, ""), (0, "x" * 101)])
async def test_an_impossible_rank_and_an_instance_without_a_name_are_refused(
    gateway: str, mine: Job, token: str, rank: int, instance: str
) -> None:
    async with knock(gateway, mine.pk, token, rank=rank, instance=instance) as socket:
        answer = await told(socket)
        assert await close_code(socket) == close_codes.UNAUTHORISED
    assert isinstance(answer, Rejection)
    assert "expected" in answer.detail


async def test_a_job_that_is_over_reports_it(gateway: str, client: Client, mine: Job, token: str) -> None:
    client.hset(names.engine(mine.pk), "over", 1)
    async with knock(gateway, mine.pk, token) as socket:
        assert await close_code(socket) == close_codes.JOB_OVER


async def test_another_protocol_is_refused(gateway: str, mine: Job, token: str) -> None:
    async with knock(gateway, mine.pk, token, protocol="paceline.v9") as socket:
        assert await close_code(socket) == close_codes.MALFORMED


async def test_a_rank_may_not_send_messages_of_workers(gateway: str, client: Client, mine: Job, token: str) -> None:
    async with knock(gateway, mine.pk, token) as socket:
        await socket.send(encode(WorkerHello(number=1, parameter_count=650, sample_count=1437)))
        answer = await told(socket)
    assert isinstance(answer, Rejection)
    assert answer.code == "malformed"


async def test_a_rank_that_reconnects_learns_which_messages_are_durable(
    gateway: str, client: Client, mine: Job, token: str
) -> None:
    publish_numbers(client, mine.pk, {"r0-1f": 3})
    async with knock(gateway, mine.pk, token) as socket:
        assert await told(socket) == Durable(number=3)


async def test_a_flood_of_reports_ends_the_one_connection_and_no_other(
    gateway: str, client: Client, mine: Job, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_limiter, "FLOOD_S", 0.2)
    async with knock(gateway, mine.pk, token, rank=1, instance="r1-2e") as calm:
        async with knock(gateway, mine.pk, token) as loud:
            await calm.send(encode(HELLO))

            async def flood() -> None:
                number = 1
                while loud.close_code is None:
                    await loud.send(encode(report(number).message))
                    number += 1

            with pytest.raises(Exception, match="4429"):
                async with asyncio.timeout(60):
                    await flood()
        assert calm.close_code is None
