"""What the fuzzer sends, and what it makes of what it sees; the bench itself runs for minutes."""

import socket
from collections import Counter
from contextlib import closing, suppress
from random import Random
from threading import Thread
from urllib.parse import urlsplit

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.live.load_agent import report
from benchmarks.live.simulated_agent import hello
from benchmarks.security import data_plane, fuzz, fuzzers, mutations
from benchmarks.security.fuzz import Result, table
from benchmarks.security.fuzzers import Sent
from controlplane.gateway.routing import websocket_urlpatterns
from controlplane.protocol.codec import BadFrame, encode, from_agent, from_rank, from_server, from_worker
from controlplane.protocol.relay import Batch, from_relay, opening_of
from workers.transport.errors import TransportError
from workers.transport.frames import HEADER_BYTES, Op, decode_header

FRAMES = [encode(hello(1, 1)), encode(report(1, 0))]
WAYS = fuzzers.ways(
    "ws://127.0.0.1:1",
    credential="c",
    worker="0:w0.0.1:aa",
    server="0:s0.0.1:bb",
    ranks="r",
    session="s",
    jobs=(7, 8),
)


def test_the_same_seed_sends_the_same_frames() -> None:
    first, again, other = ([mutations.mutated(FRAMES, random) for _ in range(300)] for random in _seeded(5, 5, 6))
    assert first == again != other


def _seeded(*seeds: int) -> list[Random]:
    return [Random(seed) for seed in seeds]


def test_frames_are_of_every_kind_and_within_their_size() -> None:
    random = Random(1)
    found = [mutations.mutated(FRAMES, random) for _ in range(5_000)]
    assert {len(frame) for frame in found} & {mutations.HUGE_BYTES}
    assert all(len(frame) <= mutations.MOST_BYTES or len(frame) == mutations.HUGE_BYTES for frame in found)
    assert len(set(found)) > 4_000


@given(seed=st.integers(0, 2**32))
def test_no_frame_breaks_a_codec(seed: int) -> None:
    random = Random(seed)
    for codec in (from_agent, from_worker, from_server, from_rank):
        with suppress(BadFrame):
            codec.decode(mutations.mutated(FRAMES, random))


@given(seed=st.integers(0, 2**32))
def test_no_frame_breaks_the_header_of_the_data_plane(seed: int) -> None:
    random = Random(seed)
    frames = [data_plane._data_frame(op, random) for op in Op]
    frame = mutations.mutated(frames, random)[:HEADER_BYTES]
    if len(frame) == HEADER_BYTES:
        with suppress(TransportError):
            decode_header(frame)


def test_every_websocket_is_fuzzed() -> None:
    """The address of each way is routed, and no route is without one."""
    routed = {
        pattern for way in WAYS for pattern in websocket_urlpatterns if pattern.resolve(urlsplit(way.url).path[1:])
    }
    assert len(WAYS) == len(websocket_urlpatterns) == len(routed)


@given(seed=st.integers(0, 2**32))
def test_a_well_formed_batch_opens_channels_before_it_uses_them(seed: int) -> None:
    random, channels = Random(seed), 0
    (relay,) = (way for way in WAYS if way.name == "relay")
    for _ in range(20):
        frame, after = fuzzers.relayed(relay, random, channels)
        batch = from_relay.decode(frame)
        assert [number for number, _ in batch.opened] == list(range(channels + 1, after + 1))
        assert {number for number, _ in [*batch.frames, *batch.closed]} <= set(range(1, after + 1))
        channels = after


def test_frames_of_relayed_processes_are_good_before_they_are_changed() -> None:
    (relay,) = (way for way in WAYS if way.name == "relay")
    assert [opening_of.decode(opening).role for opening in relay.openings] == ["worker", "server"]
    assert from_relay.decode(relay.frames[0]).frames
    assert from_relay.decode(relay.alive) == Batch([], [], [])


def result(rate: float = 10.0, after: float = 105.0) -> Result:
    return Result(
        seed=1,
        sent={"sockets": Sent(frames=9, answers=Counter({"agent: closed with 4400": 2}))},
        seconds={"before": 5.0, "sockets": 5.0, "after": 5.0},
        rates={"before": 10.0, "sockets": rate, "after": 10.0},
        memory_mb={"web": (100.0, after)},
        lost=[],
    )


def test_each_bar_that_is_missed_is_named() -> None:
    assert result().failures == []
    assert result(rate=9.4, after=140.0).failures == [
        "sockets: the bystander trains at 0.94 of its rate, expected 0.95",
        "web grew from 100 to 140 MB",
    ]


def test_the_table_reports_frames_rates_and_answers() -> None:
    lines = table(msgspec.to_builtins(result())).splitlines()
    assert " ".join(lines[2].split()) == "sockets 9 frames in 5.0 s 10.00 iterations/s 1.000 of its rate"
    assert lines[4:] == ["sockets: 2 x agent: closed with 4400", "memory in MB: web 100 -> 105"]


def test_servers_are_sent_as_many_frames_as_requested() -> None:
    got: list[int] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            for _ in range(3):
                connection, _ = server.accept()
                with connection:
                    connection.settimeout(5)
                    while data := connection.recv(1 << 20):
                        got.append(len(data))

        reader = Thread(target=serve)
        reader.start()
        sent = data_plane.fuzz_servers([server.getsockname()[1]], 1, 12, 10_000)
        reader.join(20)
    assert (sent.frames, sum(got) > 0) == (12, True)


@pytest.mark.parametrize("name", ["frames", "transfers", "rate"])
def test_the_bench_has_its_options(name: str) -> None:
    from benchmarks.command import _parser

    assert getattr(_parser().parse_args(["fuzz"]), name) > 0
    assert fuzz.LEAST_RATE == 0.95
