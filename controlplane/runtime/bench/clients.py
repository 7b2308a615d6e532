"""Websocket clients that measure: one message out, its answer in, again and again, until told to stop."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from controlplane.protocol import SUBPROTOCOL

WARM_UP_S = 1.0


@dataclass(slots=True, kw_only=True)
class Timing:
    """When measuring begins and ends, and what was measured."""

    seconds: float
    begin: float = 0.0
    round_trips_s: list[float] = field(default_factory=list)

    def start(self) -> None:
        """Begin after a warm-up."""
        self.begin = time.perf_counter() + WARM_UP_S

    @property
    def over(self) -> bool:
        """Whether it is time to stop."""
        return time.perf_counter() > self.begin + self.seconds

    def note(self, sent: float) -> None:
        """An answer came to what was sent then."""
        if sent >= self.begin:
            self.round_trips_s.append(time.perf_counter() - sent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one side of a comparison came to."""

    connections: int
    p50_ms: float
    p99_ms: float
    messages_per_s: float


def figures(connections: int, timing: Timing) -> Figures:
    """The round trips, summed up."""
    ordered = sorted(timing.round_trips_s)
    if not ordered:
        raise RuntimeError(f"no round trip of {connections} connections was completed in {timing.seconds} s")
    return Figures(
        connections=connections,
        p50_ms=ordered[len(ordered) // 2] * 1000,
        p99_ms=ordered[int(len(ordered) * 0.99)] * 1000,
        messages_per_s=len(ordered) / timing.seconds,
    )


async def open_socket(url: str, headers: Mapping[str, str] | None = None) -> ClientConnection:
    """A connection as workers have it: no compression."""
    return await connect(
        url,
        additional_headers=headers or {},
        subprotocols=[Subprotocol(SUBPROTOCOL)],
        compression=None,
        proxy=None,
        max_size=2**24,
    )


async def measure_echo(url: str, payload: Callable[[int], bytes], *, connections: int, seconds: float) -> Figures:
    """Round trips over bare echo, each connection for itself."""
    timing = Timing(seconds=seconds)
    async with AsyncExitStack() as stack:
        sockets = [await stack.enter_async_context(await open_socket(url)) for _ in range(connections)]
        timing.start()
        await asyncio.gather(*(_ping_pong(socket, payload, timing) for socket in sockets))
    return figures(connections, timing)


async def _ping_pong(socket: ClientConnection, payload: Callable[[int], bytes], timing: Timing) -> None:
    number = 0
    while not timing.over:
        number += 1
        sent = time.perf_counter()
        await socket.send(payload(number))
        await socket.recv(decode=False)
        timing.note(sent)
