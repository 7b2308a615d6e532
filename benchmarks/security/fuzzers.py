"""Mutated frames of ``bench fuzz`` to each websocket, with credentials of the fuzzer's own."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Final, get_args

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.typing import Subprotocol

from benchmarks.live.load_agent import report
from benchmarks.live.simulated_agent import hello
from benchmarks.security.mutations import mutated
from controlplane.protocol import SUBPROTOCOL
from controlplane.protocol.codec import encode
from controlplane.protocol.machine_tests import Listening, MachineTested, MeasuredLink
from controlplane.protocol.messages import (
    AgentHeartbeat,
    Heartbeat,
    ProcessEnded,
    ProcessName,
    RankHello,
    ServerHello,
    WorkerHello,
)
from controlplane.protocol.orders import Role
from controlplane.protocol.relay import Batch, Opening

BURST: Final = 100
"""Frames of one connection before the next one has its turn."""

VALID_EVERY: Final = 2
"""After two bad frames comes a good one: three bad ones in a row end the connection."""

YIELD_EVERY: Final = 4

CHANNELS_OPENED, OPENED_WELL, CHANNELS_CLOSED = 0.1, 0.7, 0.05
"""Of the well-formed batches to a relay: the part that opens a channel, how many of these with a good key, and the part
that closes one."""

MALFORMED: Final = 0.02
"""The part of the batches that a relay does not accept."""

CLOSED_S: Final = 0.05

NEWEST: Final = 4
"""Frames go to so many of the newest channels."""


class Way(msgspec.Struct, kw_only=True, frozen=True):
    """One websocket, how it is opened, and messages that are good there."""

    name: str
    url: str
    headers: dict[str, str]
    frames: list[bytes]
    alive: bytes
    """A message that is good at any time."""
    is_text: bool = False
    subprotocol: bool = True
    burst: int = BURST
    ends_at_once: bool = False
    """Whether one bad frame ends the connection, instead of three in a row: then that is waited for."""
    openings: list[bytes] = []
    """Of a relay: those of its processes."""
    inner: list[bytes] = []
    """Of a relay: good messages of its processes. Most of its batches are well formed, around these, mutated."""


class Sent(msgspec.Struct, kw_only=True):
    """What was sent, and what came of it."""

    frames: int = 0
    answers: Counter[str] = msgspec.field(default_factory=Counter)


def ways(
    base: str, *, credential: str, worker: str, server: str, ranks: str, session: str, jobs: tuple[int, int]
) -> list[Way]:
    """All sockets; ``worker`` and ``server`` are ``INDEX:INSTANCE:KEY`` of processes of the first job."""
    native, attached = jobs
    beat, name = Heartbeat(), ProcessName(job=native, role="worker", index=0, instance="x")
    found = [
        Way(
            name="agent",
            url=f"{base}/ws/agent",
            headers={"Authorization": f"Bearer {credential}"},
            frames=[
                encode(hello(1, 1)),
                encode(ProcessEnded(number=2, process=name, status=1)),
                encode(Listening(number=3, test=1, port=1)),
                encode(MachineTested(number=4, test=1, cpu_flops=1.0, links=[MeasuredLink(machine="m")])),
            ],
            alive=encode(AgentHeartbeat(cpu=0.5, memory=0.5)),
        ),
        Way(
            name="rank",
            url=f"{base}/ws/rank/{attached}/0",
            headers={"Authorization": f"Bearer {ranks}", "X-Paceline-Instance": "fuzz"},
            frames=[encode(RankHello(number=1, rank=0, world=2, batch_size=8)), encode(report(2, 0)), encode(beat)],
            alive=encode(beat),
        ),
        Way(
            name="pages",
            url=f"{base}/ws/pages",
            headers={"Cookie": f"sessionid={session}", "Origin": base.replace("ws://", "http://")},
            frames=[b"{}", b'{"type": "ping"}', b"[1]"],
            alive=b"",
            is_text=True,
            subprotocol=False,
            burst=4,
            ends_at_once=True,
        ),
    ]
    greetings: dict[Role, bytes] = {
        "worker": encode(WorkerHello(number=1, parameter_count=650, sample_count=1437)),
        "server": encode(ServerHello(number=1, host="127.0.0.1", port=9, tensor_sizes=[640, 10])),
    }
    openings, inner = [], []
    for role, known in zip(get_args(Role), (worker, server), strict=True):
        index, instance, key = known.split(":")
        openings.append(msgspec.msgpack.encode(_opening(native, role, int(index), instance, key)))
        inner += [greetings[role], encode(report(2, 0)), encode(beat)]
        found.append(
            Way(
                name=role,
                url=f"{base}/ws/{role}/{native}/{index}",
                headers={"Authorization": f"Bearer {key}", "X-Paceline-Instance": instance},
                frames=[greetings[role], encode(report(2, 0)), encode(beat)],
                alive=encode(beat),
            )
        )
    batch = Batch([(1, openings[0])], [(1, inner[0]), (1, inner[1])], [])
    found.append(
        Way(
            name="relay",
            url=f"{base}/ws/relay",
            headers={"Authorization": f"Bearer {credential}"},
            frames=[msgspec.msgpack.encode(batch)],
            alive=msgspec.msgpack.encode(Batch([], [], [])),
            ends_at_once=True,
            openings=openings,
            inner=inner,
        )
    )
    return found


def _opening(job: int, role: Role, index: int, instance: str, key: str) -> Opening:
    return Opening(job=job, role=role, index=index, instance=instance, key=key)


def fuzz_sockets(all_ways: Sequence[Way], seed: int, count: int, rate: float) -> Sent:
    """Send ``count`` mutated frames, by turns over all sockets, at most so many in a second."""
    return asyncio.run(_fuzz_sockets(all_ways, Random(seed), count, rate))


@dataclass(slots=True)
class Held:
    """An open connection."""

    connection: ClientConnection
    channels: int = 0
    """Opened so far, if it is a relay's."""


async def _fuzz_sockets(all_ways: Sequence[Way], random: Random, count: int, rate: float) -> Sent:
    sent, began, turn = Sent(), time.monotonic(), 0
    held: dict[str, Held] = {}
    while sent.frames < count:
        way = all_ways[turn % len(all_ways)]
        turn += 1
        try:
            if way.name not in held:
                held[way.name] = Held(await _opened(way))
            await _burst(held[way.name], way, random, sent, min(way.burst, count - sent.frames))
        except ConnectionClosed as closed:
            sent.answers[f"{way.name}: closed with {closed.rcvd.code if closed.rcvd else 'nothing'}"] += 1
            held.pop(way.name, None)
        except (OSError, InvalidHandshake, TimeoutError) as error:
            sent.answers[f"{way.name}: not opened ({type(error).__name__})"] += 1
            await asyncio.sleep(0.05)
        await asyncio.sleep(max(0.0, began + sent.frames / rate - time.monotonic()))
    for each in held.values():
        await each.connection.close()
    return sent


async def _opened(way: Way) -> ClientConnection:
    return await connect(
        way.url,
        additional_headers=way.headers,
        subprotocols=[Subprotocol(SUBPROTOCOL)] if way.subprotocol else None,
        compression=None,
        proxy=None,
        max_size=2**24,
        open_timeout=10,
    )


async def _burst(held: Held, way: Way, random: Random, sent: Sent, count: int) -> None:
    connection = held.connection
    for number in range(count):
        is_within = bool(way.openings) and random.random() >= MALFORMED
        if is_within:
            frame, held.channels = relayed(way, random, held.channels)
        else:
            frame = mutated(way.frames, random)
        await connection.send(frame.decode("latin-1") if way.is_text and number % 2 else frame)
        sent.frames += 1
        if way.ends_at_once and not is_within:
            with suppress(TimeoutError):
                await asyncio.wait_for(connection.wait_closed(), CLOSED_S)
        if way.alive and number % VALID_EVERY == VALID_EVERY - 1:
            await connection.send(way.alive)
        if number % YIELD_EVERY == 0:  # so that an end by the other side is seen, and no more is counted as sent
            await asyncio.sleep(0)
    with suppress(TimeoutError):
        async with asyncio.timeout(0.001):
            while True:
                said = await connection.recv(decode=False)
                sent.answers[f"{way.name}: answered"] += bool(said)


def relayed(way: Way, random: Random, channels: int) -> tuple[bytes, int]:
    """A batch that a relay accepts, around frames that its channels may not; and how many channels are open then."""
    opened = []
    if not channels or random.random() < CHANNELS_OPENED:
        channels += 1
        opening = random.choice(way.openings)
        opened.append((channels, opening if random.random() < OPENED_WELL else mutated(way.openings, random)))
    newest = max(1, channels - NEWEST)
    frames = [(random.randint(newest, channels), mutated(way.inner, random)) for _ in range(random.randrange(1, 4))]
    closed = [(random.randint(newest, channels), 0)] if random.random() < CHANNELS_CLOSED else []
    return msgspec.msgpack.encode(Batch(opened, frames, closed)), channels
