"""Ticks go on whatever the database does: pages that need no query wait for none, and no query is waited for long."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
import pytest

from controlplane.gateway import broadcaster, job_owners
from controlplane.gateway.broadcaster import Broadcaster
from controlplane.gateway.job_owners import JobOwners, Owners
from controlplane.protocol.pages import Tick


class Page:
    """A socket that keeps what it is sent."""

    def __init__(self) -> None:
        self.told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def put(self, text: str) -> None:
        self.told.put_nowait(json.loads(text))

    async def tick(self) -> dict[str, Any]:
        return await asyncio.wait_for(self.told.get(), 30)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcaster, "INTERVAL_S", 0.002)
    monkeypatch.setattr(broadcaster, "GATHER_S", 0.001)


@asynccontextmanager
async def broadcasting(owners: Owners) -> AsyncIterator[tuple[Broadcaster, Any, Any]]:
    """A broadcaster, a page that may see all, and one that is limited to team 1."""
    running, free, limited = Broadcaster(owners), Page(), Page()
    running.enter(limited, "eve", frozenset({1}))  # type: ignore[arg-type]
    running.enter(free, "ann", None)  # type: ignore[arg-type]
    task = asyncio.create_task(running.run())
    try:
        assert [(await page.tick())["seq"] for page in (free, limited)] == [0, 0]
        yield running, free, limited
    finally:
        assert not task.done(), "it goes on"
        task.cancel()


def moved(running: Broadcaster, **jobs: str) -> None:
    moved_all(running, {int(job[1:]): state for job, state in jobs.items()})


def moved_all(running: Broadcaster, jobs: dict[int, str]) -> None:
    running.take(msgspec.json.encode(Tick(seq=0, at_ms=0, jobs=jobs)))


async def nobodys(jobs: Collection[int]) -> dict[int, int]:
    return {}


async def test_pages_that_may_see_all_do_not_wait_for_the_database() -> None:
    answers = asyncio.Event()

    async def slow(jobs: Collection[int]) -> dict[int, int]:
        await answers.wait()
        return {7: 2}

    async with broadcasting(slow) as (running, free, limited):
        moved(running, j7="running", j8="running")
        assert (await free.tick())["jobs"] == {"7": "running", "8": "running"}
        assert limited.told.empty()
        answers.set()
        told = await limited.tick()
    assert (told["seq"], told["jobs"]) == (1, {"8": "running"})


async def test_changes_that_follow_one_another_shortly_are_one_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick at the first would show the others an interval later."""
    monkeypatch.setattr(broadcaster, "GATHER_S", 0.2)
    monkeypatch.setattr(broadcaster, "INTERVAL_S", 0.4)
    async with broadcasting(nobodys) as (running, free, _):
        moved(running, j7="running")
        for _ in range(5):
            await asyncio.sleep(0)
        moved(running, j8="running")
        assert (await free.tick())["jobs"] == {"7": "running", "8": "running"}
        assert free.told.empty()


async def test_a_database_that_hangs_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(job_owners, "OWNERS_S", 0.05)
    over = threading.Event()

    def hang(jobs: Collection[int]) -> dict[int, int]:
        over.wait(60)
        return {}

    try:
        async with broadcasting(partial(asyncio.to_thread, hang)) as (running, free, limited):
            for number in range(1, 4):
                moved(running, j7=f"state {number}")
                assert (await free.tick())["seq"] == number
            assert limited.told.empty(), "it sees the gap in the numbers and refetches"
            over.set()
            async with asyncio.timeout(30):
                while limited.told.empty():
                    moved(running, j7="done")
                    await free.tick()
            assert (await limited.tick())["seq"] >= 3
    finally:
        over.set()
    assert "owners of jobs not known" in caplog.text


@pytest.mark.parametrize("error", [ValueError("no number"), OSError("gone"), KeyError(7)])
async def test_whatever_fails_is_logged_and_ticks_continue(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    failing = [True]

    async def owners(jobs: Collection[int]) -> dict[int, int]:
        if failing:
            failing.clear()
            raise error
        return {7: 1}

    async with broadcasting(owners) as (running, free, limited):
        moved(running, j7="running")
        assert (await free.tick())["seq"] == 1
        while failing:
            await asyncio.sleep(0)
        moved(running, j7="paused")
        assert (await limited.tick())["seq"] == 2
        assert (await free.tick())["jobs"] == {"7": "paused"}
    assert repr(error) in caplog.text


async def test_a_database_that_hangs_is_queried_once() -> None:
    asked: list[Collection[int]] = []

    async def hang(jobs: Collection[int]) -> dict[int, int]:
        asked.append(jobs)
        await asyncio.Event().wait()
        return {}

    owners = JobOwners(hang)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_owners, "OWNERS_S", 0.01)
        assert [await owners.of([7]) for _ in range(3)] == [None] * 3
        assert await owners.of([8]) is None
    assert asked == [[7]]
    assert await owners.of([]) == {}
    assert owners._reading is not None
    owners._reading.cancel()


async def test_an_answer_serves_all_who_ask_within_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Collection[int]] = []

    async def read(jobs: Collection[int]) -> dict[int, int]:
        asked.append(jobs)
        await asyncio.sleep(0)
        return {7: 1}

    owners = JobOwners(read)
    assert await asyncio.gather(*(owners.of([7, 8]) for _ in range(50))) == [{7: 1}] * 50
    assert await owners.of([9, 7]) == {7: 1}
    assert asked == [[7, 8], [9]]
    monkeypatch.setattr(job_owners, "KEPT_S", 0.0)
    monkeypatch.setattr(job_owners, "OWNERS_S", 0.01)
    assert await owners.of([7]) is None, "none holds: it asks anew, and not for ever"
    assert asked[2] == [7]


async def test_a_page_that_missed_ticks_receives_the_latest_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcaster, "MOST_JOBS", 2)
    async with broadcasting(nobodys) as (running, _, limited):
        for job in (1, 2, 3, 2):
            moved_all(running, {job: "running"})
        await limited.tick()
        await running.refresh(limited)
        assert list((await limited.tick())["jobs"]) == ["3", "2"]


async def test_more_jobs_than_a_tick_names_leave_a_gap_after_which_pages_refetch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broadcaster, "MOST_JOBS", 2)
    async with broadcasting(nobodys) as (running, free, limited):
        moved_all(running, {1: "running", 2: "running", 3: "running"})
        told = [await page.tick() for page in (free, limited)]
    assert [(tick["seq"], tick["jobs"]) for tick in told] == [(2, {})] * 2
