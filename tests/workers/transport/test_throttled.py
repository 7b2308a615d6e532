"""An emulated link lets bytes through at its speed, whoever they are from."""

import socket
import threading
from collections.abc import Callable

import pytest

from controlplane.jobs.validation import validated_spec
from controlplane.protocol.spec import LinkChange, LinkEmulation, SpecError, parse_spec
from tests.core.story import document
from tests.workers.driver import Cluster, job_spec
from workers.transport.channel import Channel
from workers.transport.frames import Header, Op
from workers.transport.throttled import CHUNK_BYTES, EmulatedLink, Lane, ThrottledChannel


class Time:
    """Passes only by resting."""

    def __init__(self) -> None:
        self.at = 0.0
        self.rests: list[float] = []

    def now(self) -> float:
        return self.at

    def rest(self, seconds: float) -> None:
        self.rests.append(seconds)
        self.at += seconds


def link_of(emulation: LinkEmulation, time: Time) -> EmulatedLink:
    return EmulatedLink(emulation, rest=time.rest, now=time.now)


def test_bytes_take_their_time_one_after_another() -> None:
    time = Time()
    lane = Lane(time.rest, time.now)
    lane.bytes_per_second = 1000.0
    for size in (500, 250, 250):
        lane.pass_through(size)
    assert time.at == 1.0


def test_time_in_which_nothing_passes_is_not_saved_up() -> None:
    time = Time()
    lane = Lane(time.rest, time.now)
    lane.bytes_per_second = 1000.0
    time.at = 60.0
    lane.pass_through(500)
    assert time.at == 60.5


def test_a_reply_of_a_few_bytes_does_not_wait_for_the_chunks_of_others() -> None:
    time = Time()
    lane = Lane(lambda seconds: time.rests.append(seconds), time.now)
    lane.bytes_per_second = 1000.0
    lane.pass_through(500)
    lane.pass_between(10)
    assert time.rests == [0.5, 0.01]
    lane.pass_through(500)
    assert time.rests[2] == pytest.approx(1.01)


def test_a_sender_that_wakes_up_late_makes_the_link_no_slower() -> None:
    time = Time()
    lane = Lane(lambda seconds: time.rest(seconds + 0.004), time.now)
    lane.bytes_per_second = 1000.0
    for _ in range(100):
        lane.pass_through(20)
    assert time.at == pytest.approx(100 * 0.02 + 0.004)


def test_an_unlimited_link_rests_never() -> None:
    time = Time()
    link_of(LinkEmulation(), time).inward.pass_through(10**9)
    assert time.rests == []


def test_the_limit_changes_with_the_iteration_and_never_back() -> None:
    changes = [LinkChange(iteration=20, bytes_per_second=None), LinkChange(iteration=5, bytes_per_second=10.0)]
    link = link_of(LinkEmulation(bytes_per_second=100.0, changes=changes), Time())
    limits = []
    for iteration in (0, 4, 5, 3, 19, 20, 7):
        link.reach(iteration)
        limits.append(link.outward.bytes_per_second)
    assert limits == [100.0, 100.0, 10.0, 10.0, 10.0, None, None]


@pytest.mark.parametrize("way", ["sends", "receives"])
def test_a_frame_passes_whole_and_at_the_stated_speed(way: str) -> None:
    time = Time()
    link = link_of(LinkEmulation(bytes_per_second=1e6), time)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        here = socket.create_connection(listening.getsockname())
        there, _ = listening.accept()
    thin, plain = ThrottledChannel(here, link), Channel(there)
    sender, receiver = (thin, plain) if way == "sends" else (plain, thin)
    payload = bytes(range(256)) * 1000
    send: Callable[[], None] = lambda: sender.send(Header(op=Op.PUSH, iteration=3, checked=True), payload)  # noqa: E731
    sending = threading.Thread(target=send)
    sending.start()
    header = receiver.receive()
    assert receiver.receive_bytes(header) == payload
    sending.join()
    assert time.at == pytest.approx(len(payload) / 1e6, rel=0.01)
    assert max(time.rests) <= 1.01 * (CHUNK_BYTES + 100) / 1e6
    thin.close()
    plain.close()


def test_a_worker_measures_the_server_behind_a_thin_link() -> None:
    thin = [LinkEmulation(), LinkEmulation(bytes_per_second=50_000.0)]
    with Cluster(job_spec(workers=1, servers=2, emulate_servers=thin), [[8]] * 3, block_bytes=1024) as cluster:
        cluster.run()
        for report in cluster.reports(0):
            usual, slow = sorted(report.exchanges, key=lambda each: each.server)
            assert min(slow.push_s, slow.pull_s) >= slow.bytes / 50_000.0
            assert usual.seconds < slow.seconds / 2


def test_there_are_no_more_emulated_links_than_servers() -> None:
    three = document(emulate_servers=[{"bytes_per_second": 1e6}] * 3)
    with pytest.raises(SpecError, match="emulate_servers: found '3 links', expected at most one for each of the 2"):
        validated_spec(three)
    assert validated_spec(three | {"synchronization": {"placement": {"name": "psld"}}}).servers == 2
    with pytest.raises(SpecError, match="emulate_servers: found '1001 links', expected at most 1000"):
        parse_spec(document(emulate_servers=[{"bytes_per_second": 1e6}] * 1001))


def test_the_limit_of_a_workers_link_follows_the_iteration_that_it_sends_for() -> None:
    link = EmulatedLink(
        LinkEmulation(bytes_per_second=1e9, changes=[LinkChange(iteration=2, bytes_per_second=5e5)]),
        rest=lambda seconds: None,
    )
    listener = socket.create_server(("127.0.0.1", 0))
    near = socket.create_connection(listener.getsockname())
    channel = ThrottledChannel(near, link)
    limits = []
    for iteration in (1, 2):
        channel.send(Header(op=Op.PULL, iteration=iteration))
        limits.append(link.inward.bytes_per_second)
    channel.close()
    listener.close()
    assert limits == [1e9, 5e5]
