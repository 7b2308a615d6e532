"""Measures round trips of websocket connections."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from controlplane.protocol import SUBPROTOCOL

WARM_UP_S = 1.0

UNTIL_STARTED_S = 0.05
"""Interval of reports before the measurement, so that history does not fall behind."""


@dataclass(slots=True, kw_only=True)
class Timing:
    """Begin and end of a measurement, and its values. After the begin, every report follows immediately."""

    seconds: float
    begin: float = float("inf")
    started: asyncio.Event = field(default_factory=asyncio.Event)
    round_trips_s: list[float] = field(default_factory=list)
    _sent: dict[tuple[int, int], float] = field(default_factory=dict)

    def start(self) -> None:
        """Begin after a warm-up."""
        self.begin = time.perf_counter() + WARM_UP_S
        self.started.set()

    @property
    def over(self) -> bool:
        """Whether it is time to stop."""
        return time.perf_counter() > self.begin + self.seconds

    def note(self, sent: float) -> None:
        """Record an answer to a message sent at that time."""
        if sent >= self.begin:
            self.round_trips_s.append(time.perf_counter() - sent)

    async def before_report(self, job: int, rank: int, iteration: int) -> None:
        """See ``Pace``."""
        if not self.started.is_set():
            await asyncio.sleep(UNTIL_STARTED_S)
        self._sent[job, rank] = time.perf_counter()

    def answered(self, job: int, rank: int, iteration: int) -> None:
        """See ``Pace``."""
        self.note(self._sent[job, rank])


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The result of one side of a comparison."""

    connections: int
    p50_ms: float
    p99_ms: float
    messages_per_s: float
    cost_us: dict[str, float] = field(default_factory=dict)
    """CPU time per message of each process, in microseconds."""


def percentile(values: Sequence[float], part: float) -> float:
    """The percentile of ``values`` for the fraction ``part``, by nearest rank without interpolation."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]


def figures(
    connections: int, round_trips_s: Sequence[float], seconds: float, cpu_s: Mapping[str, float] | None = None
) -> Figures:
    """The round trips, summed up; ``cpu_s`` is what each process took for them."""
    if not round_trips_s:
        raise RuntimeError(f"no round trip of {connections} connections was completed in {seconds} s")
    return Figures(
        connections=connections,
        p50_ms=percentile(round_trips_s, 0.5) * 1000,
        p99_ms=percentile(round_trips_s, 0.99) * 1000,
        messages_per_s=len(round_trips_s) / seconds,
        cost_us={name: spent_s / len(round_trips_s) * 1e6 for name, spent_s in (cpu_s or {}).items()},
    )


async def open_socket(url: str, headers: Mapping[str, str] | None = None) -> ClientConnection:
    """A connection like those of workers: without compression."""
    return await connect(
        url,
        additional_headers=headers or {},
        subprotocols=[Subprotocol(SUBPROTOCOL)],
        compression=None,
        proxy=None,
        max_size=2**24,
        open_timeout=60,
    )


async def measure_echo(url: str, payload: Callable[[int], bytes], timing: Timing, *, connections: int) -> None:
    """Measure round trips of bare echo on each connection; ``timing`` starts once all are open."""
    async with AsyncExitStack() as stack:
        sockets = [await stack.enter_async_context(await open_socket(url)) for _ in range(connections)]
        timing.start()
        await asyncio.gather(*(_ping_pong(socket, payload, timing) for socket in sockets))


async def _ping_pong(socket: ClientConnection, payload: Callable[[int], bytes], timing: Timing) -> None:
    number = 0
    while not timing.over:
        number += 1
        sent = time.perf_counter()
        await socket.send(payload(number))
        await socket.recv(decode=False)
        timing.note(sent)
