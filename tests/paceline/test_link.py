"""The socket of a rank: what is said arrives once each, through outages; nothing that goes wrong reaches the script."""

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from controlplane.protocol.messages import Quiesced, RankHello
from controlplane.protocol.orders import Rejection
from paceline.address import socket_address
from paceline.errors import CannotAttach
from paceline.identity import identity
from paceline.link import BITE, BITE_S, GATHER_S, SocketLink
from paceline.ranks import RemoteRank, close_all
from tests.paceline.plane import Plane
from tests.paceline.ranks import free_port, shared
from tests.support.waiting import eventually


def hello(number: int) -> RankHello:
    return RankHello(number=number, rank=0, world=2, batch_size=8)


def held(iteration: int) -> Any:
    return lambda number: Quiesced(number=number, generation=0, iteration=iteration, sequence=0)


@pytest.fixture
def plane() -> Iterator[Plane]:
    with Plane() as running:
        yield running


@pytest.fixture(autouse=True)
def sentences(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    logging.getLogger("paceline").propagate = True
    caplog.set_level(logging.INFO, logger="paceline")
    return caplog


def linked(url: str, **options: Any) -> SocketLink:
    return SocketLink(socket_address(url, "/ws/rank/5/0"), "plj_secret", "rank 0 of job 5", **options)


def test_a_rank_connects_with_its_token_and_receives_orders(plane: Plane) -> None:
    plane.orders = shared(3, 12, 4)
    link = linked(plane.url)
    link.say(hello)
    assert link.await_orders(20) == shared(3, 12, 4)
    link.close(5)
    assert plane.headers[0]["Authorization"] == "Bearer plj_secret"
    assert len(plane.headers[0]["X-Paceline-Instance"]) == 32


def test_what_is_reported_in_an_outage_arrives_once_each_behind_it(plane: Plane) -> None:
    plane.durable = False
    link = linked(plane.url)
    link.say(hello)
    for iteration in range(5):
        link.say(held(iteration))
    eventually(lambda: len(plane.said(Quiesced)) == 5, what="what is said before the outage")
    plane.stop()
    for iteration in range(5, 10):
        link.say(held(iteration))
    plane.durable = True
    plane.start()
    eventually(lambda: not link.unacknowledged, what="what is said again")
    link.close(5)
    assert [message.iteration for message in plane.said(Quiesced)] == [*range(10)]
    assert [message.number for _, message in plane.heard[-12:]] == [*range(1, 13)]


def test_a_backlog_goes_out_in_bites(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float] = []
    sleep = asyncio.sleep

    async def rest(seconds: float) -> None:
        rests.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr("paceline.link.asyncio.sleep", rest)
    plane.stop()
    link = linked(plane.url)
    link.say(hello)
    for iteration in range(5 * BITE):
        link.say(held(iteration))
    plane.start()
    eventually(lambda: not link.unacknowledged, what="what was kept")
    link.close(5)
    assert rests.count(BITE_S) == 5
    assert [message.iteration for message in plane.said(Quiesced)] == [*range(5 * BITE)]


def test_reports_of_a_fast_loop_go_together(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float] = []
    sleep = asyncio.sleep

    async def rest(seconds: float) -> None:
        rests.append(seconds)
        await sleep(seconds)

    link = linked(plane.url)
    link.say(hello)
    assert link.await_orders(20) is not None
    eventually(lambda: not link.unacknowledged, what="the hello")
    monkeypatch.setattr("paceline.link.asyncio.sleep", rest)
    for iteration in range(10):
        link.say(held(iteration))
    eventually(lambda: not link.unacknowledged, what="all of them")
    link.close(5)
    assert [message.iteration for message in plane.said(Quiesced)] == [*range(10)]
    assert 1 <= len(rests) < 10
    assert max(rests) <= GATHER_S


def test_in_a_long_outage_what_is_kept_is_bounded_and_numbers_have_no_gap(
    plane: Plane, sentences: pytest.LogCaptureFixture
) -> None:
    plane.stop()
    link = linked(plane.url, most_kept=4)
    link.say(hello)
    for iteration in range(9):
        link.say(held(iteration))
    plane.start()
    eventually(lambda: not link.unacknowledged, what="what was kept")
    eventually(lambda: "6 reports were dropped in a long outage" in sentences.text, what="the sentence")
    link.say(held(20))
    link.close(5)
    assert [message.iteration for message in plane.said(Quiesced)] == [0, 1, 2, 20]
    numbers = [message.number for _, message in plane.heard]
    assert numbers == [*range(1, len(numbers) + 1)]


@pytest.mark.parametrize(
    ("status", "code", "reason"),
    [(401, 0, "(HTTP 401)"), (None, 4401, "the token of job 5 was revoked"), (None, 4410, "the job is over")],
)
def test_a_rank_that_is_sent_away_reports_why_and_stays_away(
    status: int | None, code: int, reason: str, sentences: pytest.LogCaptureFixture
) -> None:
    with Plane(status=status) as plane:
        link = linked(plane.url)
        link.say(hello)
        if code:
            assert link.await_orders(20) is not None
            plane.close_all(code, reason if code == 4401 else "")
        eventually(lambda: reason in sentences.text, what="the sentence")
        for iteration in range(3):
            link.say(held(iteration))
        link.close(5)
        assert len(plane.headers) == 1
    assert "rank 0 of job 5 continues without the control plane" in sentences.text


@pytest.mark.parametrize("code", ["stale", "unauthorised", "malformed"])
def test_a_rejection_of_this_instance_ends_only_its_connection(code: Any, sentences: pytest.LogCaptureFixture) -> None:
    with Plane(lambda rank, message: [Rejection(code=code, detail="because of this")]) as plane:
        link = linked(plane.url)
        link.say(hello)
        eventually(lambda: "because of this" in sentences.text, what="the sentence")
        link.close(5)
        assert len(plane.headers) == 1


def test_what_a_newer_control_plane_reports_is_passed_over_with_a_sentence(
    sentences: pytest.LogCaptureFixture,
) -> None:
    newer = msgspec.msgpack.encode({"type": "praise", "number": 1})
    with Plane(lambda rank, message: [newer, newer]) as plane:
        link = linked(plane.url)
        link.say(hello)
        assert link.await_orders(20) is not None
        link.say(held(1))
        eventually(lambda: not link.unacknowledged, what="what is said behind it")
        link.close(5)
    assert sentences.text.count("a message that this release does not understand") == 1


def test_a_refusal_that_is_about_other_ranks_is_reported_once(sentences: pytest.LogCaptureFixture) -> None:
    differs = Rejection(code="unexpected", detail="ranks differ in batch_size: 8 and 9")
    with Plane(lambda rank, message: [differs]) as plane:
        link = linked(plane.url)
        link.say(hello)
        link.say(held(1))
        eventually(lambda: not link.unacknowledged, what="what is said behind it")
        link.close(5)
    assert sentences.text.count("ranks differ in batch_size: 8 and 9") == 1


def test_what_was_refused_for_now_is_sent_again(plane: Plane) -> None:
    refusals = [Rejection(code="slow-down", detail="", number=2)]
    plane.answer = lambda rank, message: [refusals.pop()] if refusals and message.number == 2 else []
    plane.durable = False
    link = linked(plane.url)
    link.say(hello)
    link.say(held(1))
    eventually(lambda: sum(message.number == 2 for _, message in plane.heard) == 2, what="the message again")
    link.close(0.1)


def test_a_control_plane_that_is_away_is_reported_once_and_not_waited_for(sentences: pytest.LogCaptureFixture) -> None:
    link = linked(f"http://127.0.0.1:{free_port()}")
    link.say(hello)
    assert link.await_orders(20) is None
    link.close(0.1)
    assert sentences.text.count("has no connection to") == 1


def test_a_script_that_ends_in_an_outage_sends_its_reports_when_the_control_plane_is_back(
    plane: Plane, monkeypatch: pytest.MonkeyPatch, sentences: pytest.LogCaptureFixture
) -> None:
    pauses = threading.Semaphore(0)

    def delay_s(least_s: float, most_s: float) -> float:
        """The first delay is longer than the test. The control plane returns in the second, at the script's end."""
        pauses.release()
        if not ending.is_set():
            return 600.0
        plane.start()
        return 0.0

    ending = threading.Event()
    plane.stop()
    monkeypatch.setattr("paceline.link.random.uniform", delay_s)
    link = linked(plane.url)
    link.say(hello)
    for iteration in range(3):
        link.say(held(iteration))
    assert pauses.acquire(timeout=20)
    ending.set()
    link.close(20)
    assert [message.iteration for message in plane.said(Quiesced)] == [0, 1, 2]
    assert not link.unacknowledged
    assert "has not confirmed" not in sentences.text


def test_a_script_that_ends_in_an_outage_waits_no_longer_than_it_may_and_says_once_what_is_lost(
    sentences: pytest.LogCaptureFixture,
) -> None:
    link = linked(f"http://127.0.0.1:{free_port()}")
    link.say(hello)
    assert link.await_orders(20) is None
    for iteration in range(3):
        link.say(held(iteration))
    begin_s = time.monotonic()
    link.close(0.5)
    assert 0.5 <= time.monotonic() - begin_s < 10
    assert sentences.text.count("the control plane has not confirmed 4 messages at the end") == 1


def test_a_link_is_one_thread(plane: Plane) -> None:
    before = {*threading.enumerate()}
    link = linked(plane.url.replace("127.0.0.1", "localhost"))
    link.say(hello)
    assert link.await_orders(20) is not None
    assert [thread.name for thread in {*threading.enumerate()} - before] == ["paceline"]
    link.close(5)


def test_a_remote_rank_receives_shares_and_sends_reports(plane: Plane) -> None:
    plane.orders = shared(1, 12, 4, share_from=7)
    remote = RemoteRank(plane.url, 5, "plj_secret", rank=1, world=2, batch_size=8)
    assert remote.await_orders(20)
    assert (remote.share, remote.iteration, remote.stopped, remote.held) == (4, 7, False, False)
    remote.report(samples=4, loss=float("nan"), compute_s=0.5)
    plane.say(shared(2, 8, 8, stop_at=8))
    eventually(lambda: remote.stopped, what="the stop")
    remote.close()
    assert [type(message).__name__ for _, message in plane.heard] == ["RankHello", "IterationReport", "WorkerFinished"]
    assert (plane.heard[1][1].iteration, plane.heard[1][1].spoilt) == (7, "nan")


def test_remote_ranks_wait_together_for_a_control_plane_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.ranks.FAREWELL_S", 0.5)
    url = f"http://127.0.0.1:{free_port()}"
    ranks = [RemoteRank(url, 5, "plj_secret", rank=rank, world=20, batch_size=8) for rank in range(20)]
    assert not any(rank.await_orders(20) for rank in ranks)
    begin_s = time.monotonic()
    close_all(ranks)
    assert 0.5 <= time.monotonic() - begin_s < 5


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("nowhere", "PACELINE_URL: 'nowhere' is not an address of a control plane; give one like http"),
        ("http://10.0.0.7:8000", "not encrypted and not on this machine"),
        ("https://name:word@plane.example", "takes no password"),
        ("http://[::1", "is not an address"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_with_the_cure(url: str, sentence: str) -> None:
    with pytest.raises(CannotAttach, match=sentence):
        socket_address(url, "/ws", {})


def test_addresses_of_sockets() -> None:
    assert (
        socket_address("https://plane.example/team/", "/ws/rank/1/0", {}).url == "wss://plane.example/team/ws/rank/1/0"
    )
    assert socket_address("http://10.0.0.7:8000", "/ws", {"PACELINE_INSECURE": "1"}).url == "ws://10.0.0.7:8000/ws"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"RANK": "1", "WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "x"}, (1, 4, "torchrun")),
        (
            {"RANK": "1", "WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "x", "ACCELERATE_MIXED_PRECISION": "no"},
            (1, 4, "accelerate"),
        ),
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "3"}, (2, 3, "slurm")),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, (0, 2, "openmpi")),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, (0, 2, "mpi")),
        ({"JOB_COMPLETION_INDEX": "3", "PACELINE_WORLD": "5"}, (3, 5, "kubernetes")),
        ({"RANK": "0", "WORLD_SIZE": "2", "PACELINE_LAUNCHER": "mine"}, (0, 2, "mine")),
        ({}, (0, 1, "none")),
    ],
)
def test_the_identity_comes_from_the_launcher(environment: dict[str, str], expected: tuple[int, int, str]) -> None:
    found = identity(environment=environment)
    assert (found.rank, found.world, found.launcher) == expected


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"JOB_COMPLETION_INDEX": "3"}, "set PACELINE_WORLD"),
        ({"RANK": "4", "WORLD_SIZE": "4"}, "rank 4 of 4 ranks"),
        ({"RANK": "first", "WORLD_SIZE": "4"}, "RANK is 'first', which is not a number"),
    ],
)
def test_half_of_an_identity_is_refused(environment: dict[str, str], sentence: str) -> None:
    with pytest.raises(CannotAttach, match=sentence):
        identity(environment=environment)
