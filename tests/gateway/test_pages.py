"""Sockets of pages: who may listen, and how often and in what order they are told."""

import asyncio
import json
from collections.abc import Callable, Collection
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import OperationalError
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from controlplane.gateway import pages
from controlplane.gateway.hub import get_hub
from controlplane.jobs.models import Job
from controlplane.people.models import Membership, Session, Team
from controlplane.runtime import names, ticks
from controlplane.runtime.redis import Client
from tests.gateway.transports import close_code, eventually


def knock(gateway: str, session: str = "", origin: str | None = "http://127.0.0.1:8000") -> Any:
    headers = {"Cookie": f"sessionid={session}"} if session else {}
    return connect(
        f"{gateway}/ws/pages", additional_headers=headers, subprotocols=["paceline.v1"], origin=origin, compression=None
    )


async def tick(socket: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(30):
        return json.loads(await socket.recv())


async def test_ticks_are_merged_and_numbered_without_gaps(gateway: str, client: Client, session: str) -> None:
    async with knock(gateway, session) as socket:
        first = await tick(socket)
        began = asyncio.get_running_loop().time()
        for number in range(40):
            ticks.publish(client, jobs={number % 3: "running"}, fleet=number == 39)
        told: list[dict[str, Any]] = []
        while len({job for t in told for job in t["jobs"]}) < 3 or not told[-1]["fleet"]:
            told.append(await tick(socket))
        took = asyncio.get_running_loop().time() - began
    assert [t["seq"] for t in told] == [first["seq"] + n for n in range(1, len(told) + 1)]
    assert len(told) <= 2 + took * 2, "at most two a second"


async def test_a_page_that_missed_ticks_receives_all_changes(gateway: str, client: Client, session: str) -> None:
    async with knock(gateway, session) as listener:
        await tick(listener)
        ticks.publish(client, jobs={7: "running"})
        moved = await tick(listener)
        async with knock(gateway, session) as socket:
            assert (await tick(socket))["seq"] == moved["seq"]
            await socket.send(json.dumps({"type": "refresh", "since": 0}))
            answer = await tick(socket)
    assert (answer["seq"], answer["jobs"], answer["fleet"]) == (moved["seq"], {"7": "running"}, True)


async def test_an_anonymous_client_receives_nothing(gateway: str, client: Client, session: str) -> None:
    async with knock(gateway) as socket:
        assert await close_code(socket) == 4401


async def test_a_user_without_a_role_receives_nothing(gateway: str, client: Client, session: str) -> None:
    await sync_to_async(change)(lambda user: user.groups.clear())
    async with knock(gateway, session) as socket:
        assert await close_code(socket) == 4401


def change(how: Callable[[User], object]) -> None:
    user = User.objects.get(username="eve")
    how(user)
    user.save()


@pytest.mark.parametrize(
    "how",
    [
        lambda user: Session.objects.all().delete(),
        lambda user: setattr(user, "is_active", False),
        lambda user: user.set_password("another"),
        lambda user: user.groups.clear(),
    ],
    ids=["signed out", "deactivated", "another password", "no role any more"],
)
async def test_a_page_receives_nothing_after_its_user_loses_access(
    gateway: str, client: Client, session: str, how: Callable[[User], object]
) -> None:
    async with knock(gateway, session) as socket:
        await tick(socket)
        await sync_to_async(change)(how)
        assert await close_code(socket) == 4401


async def test_one_user_has_a_limited_number_of_pages_open(
    gateway: str, client: Client, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MOST_PAGES", 2)
    async with knock(gateway, session) as first, knock(gateway, session) as second:
        await tick(first)
        await tick(second)
        async with knock(gateway, session) as third:
            assert await close_code(third) == 4429
        await first.close()
        hub = await get_hub()
        await eventually(lambda: hub.pages_of.total() == 1)
        async with knock(gateway, session) as third:
            await tick(third)
    await eventually(lambda: not hub.pages_of)


async def test_a_page_listens_on_while_its_person_may_look(gateway: str, client: Client, session: str) -> None:
    async with knock(gateway, session) as socket:
        await tick(socket)
        hub = await get_hub()
        await hub._recheck()
        ticks.publish(client, jobs={7: "running"})
        assert (await tick(socket))["jobs"] == {"7": "running"}


async def test_a_page_receives_no_ticks_of_other_teams_jobs(
    gateway: str, client: Client, session: str, job: Job
) -> None:
    vision = await Team.objects.acreate(name="vision")
    await Job.objects.filter(pk=job.pk).aupdate(team=vision)
    async with knock(gateway, session) as socket:
        await tick(socket)
        ticks.publish(client, jobs={job.pk: "running", 999: "running"})
        assert (await tick(socket))["jobs"] == {"999": "running"}
        await socket.send(json.dumps({"type": "refresh", "since": 0}))
        assert (await tick(socket))["jobs"] == {"999": "running"}
        eve = await User.objects.aget(username="eve")
        await Membership.objects.acreate(team=vision, user=eve)
        await (await get_hub())._recheck()
        ticks.publish(client, jobs={job.pk: "paused"})
        assert (await tick(socket))["jobs"] == {str(job.pk): "paused"}
        await Membership.objects.all().adelete()
        await (await get_hub())._recheck()
        ticks.publish(client, jobs={job.pk: "running"})
        assert (await tick(socket))["jobs"] == {}


async def test_a_page_refetches_after_the_database_did_not_report_whose_jobs_moved(
    gateway: str, client: Client, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await Team.objects.acreate(name="vision")
    async with knock(gateway, session) as socket:
        first = await tick(socket)
        owners = (await get_hub()).broadcaster._owners
        read, asked = owners._read, asyncio.Event()

        async def away(jobs: Collection[int]) -> dict[int, int]:
            asked.set()
            raise OperationalError("away")

        monkeypatch.setattr(owners, "_read", away)
        ticks.publish(client, jobs={7: "running"})
        await asyncio.wait_for(asked.wait(), 30)
        monkeypatch.setattr(owners, "_read", read)
        ticks.publish(client, jobs={7: "paused"})
        told = await tick(socket)
    assert (told["seq"], told["jobs"]) == (first["seq"] + 2, {"7": "paused"})


@pytest.mark.parametrize("origin", ["http://elsewhere.example", None])
async def test_a_page_of_another_site_is_refused(
    gateway: str, client: Client, session: str, origin: str | None
) -> None:
    with pytest.raises(InvalidStatus, match="403"):
        async with knock(gateway, session, origin):
            pass


@pytest.mark.parametrize(("said", "code"), [("{", 4400), ("x" * 2000, 4413)])
async def test_nonsense_ends_the_socket(gateway: str, client: Client, session: str, said: str, code: int) -> None:
    async with knock(gateway, session) as socket:
        await socket.send(said)
        assert await close_code(socket) == code


async def test_a_gateway_subscribes_once_however_many_listen(gateway: str, client: Client, session: str) -> None:
    async with knock(gateway, session) as first, knock(gateway, session) as second:
        await tick(first)
        await tick(second)
        assert await eventually(lambda: client.pubsub_numsub(names.PAGES)) == [(b"pages", 1)]
