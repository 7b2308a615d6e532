"""Transfer times of parameters: links of workers, and the bandwidth and CPU of servers that all workers share.

A server is shared fairly: each of n transfers gets one n-th of its rate. If no server has a limit, the time of a
transfer is known at its beginning and needs no event of its own.
"""

import heapq
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from controlplane.protocol.base import Seconds
from controlplane.protocol.spec import Part
from controlplane.simulator.disturbances import Disturbances
from controlplane.simulator.kernel import Kernel
from controlplane.simulator.learned_machine import DRAWN, draw

BytesPerSecond = Annotated[float, Meta(gt=0.0)]

GBIT: float = 1e9 / 8
"""Bytes per second of one gigabit per second."""


class LinkChange(Part, frozen=True, kw_only=True):
    """A change of bandwidth: from an iteration of the worker, or from a time on."""

    bytes_per_s: BytesPerSecond
    from_iteration: int | None = None
    from_s: Seconds | None = None


class Link(Part, frozen=True, kw_only=True):
    """A worker's link to the servers. Bandwidth None: unlimited."""

    bytes_per_s: BytesPerSecond | None = None
    latency_s: Seconds = 0.0
    changes: tuple[LinkChange, ...] = ()
    """The last change that applies is used."""
    recorded_s: tuple[Seconds, ...] = ()
    """Transfer times of recorded iterations: each iteration draws one, which overrides other settings."""

    def bandwidth(self, iteration: int, at_s: float) -> float | None:
        """Bytes per second at that iteration and time."""
        found = self.bytes_per_s
        for change in self.changes:
            is_reached = change.from_iteration is not None and iteration >= change.from_iteration
            if is_reached or (change.from_s is not None and at_s >= change.from_s):
                found = change.bytes_per_s
        return found


class ServerChange(Part, frozen=True, kw_only=True):
    """A change of a server's limit: from a time on, or when the first worker exchanges for an iteration."""

    bytes_per_s: BytesPerSecond
    from_s: Seconds | None = None
    from_iteration: int | None = None

    def is_reached(self, iteration: int, at_s: float) -> bool:
        """Whether the change applies at that iteration and time."""
        by_iteration = self.from_iteration is not None and iteration >= self.from_iteration
        return by_iteration or (self.from_s is not None and at_s >= self.from_s)


class ServerSpec(Part, frozen=True, kw_only=True):
    """A server's bytes per second, each way, and its summing speed. None: unlimited."""

    bytes_per_s: BytesPerSecond | None = None
    latency_s: Seconds = 0.0
    """Latency of each worker's exchange with it, each way."""
    sums_bytes_per_s: BytesPerSecond | None = None
    """How fast its CPU sums pushed gradients, if that is slower than the network; constant over time."""
    changes: tuple[ServerChange, ...] = ()
    disk_bytes_per_s: BytesPerSecond | None = None
    """How fast checkpoints are written and read; None: instantly."""

    def disk_s(self, size: int) -> float:
        """Time to write or read ``size`` bytes."""
        return size / self.disk_bytes_per_s if self.disk_bytes_per_s is not None else 0.0

    def rate_at(self, at_s: float, iteration: int = 0) -> float | None:
        """Bytes per second at that iteration and time."""
        found = self.bytes_per_s
        for change in self.changes:
            if change.is_reached(iteration, at_s):
                found = change.bytes_per_s
        return found


class Pipe:
    """One direction of one server: transfers share ``rate`` fairly.

    It has a virtual time of its own that advances by ``rate / n`` bytes per second while n transfers are in progress; a
    transfer of b bytes ends when that time has advanced by b (processor sharing, at the cost of a heap operation per
    transfer).
    """

    def __init__(self, kernel: Kernel, rate: float) -> None:
        self._kernel, self._rate = kernel, rate
        self._advanced = 0.0
        self._at_s = 0.0
        self._under_way: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0
        self._planned = 0

    def send(self, size: float, done: Callable[..., None], *arguments: Any) -> None:
        """Begin a transfer; ``done(*arguments)`` is called at its end."""
        self._advance()
        self._sequence += 1
        heapq.heappush(self._under_way, (self._advanced + size, self._sequence, done, arguments))
        self._plan()

    def limit(self, rate: float) -> None:
        """Change the rate from now on."""
        self._advance()
        self._rate = rate
        self._plan()

    def _advance(self) -> None:
        if self._under_way:
            self._advanced += (self._kernel.now - self._at_s) * self._rate / len(self._under_way)
        else:
            self._advanced = 0.0
        self._at_s = self._kernel.now

    def _plan(self) -> None:
        if self._under_way:
            self._planned += 1
            left = max(0.0, self._under_way[0][0] - self._advanced)
            self._kernel.after(left * len(self._under_way) / self._rate, self._end, self._planned)

    def _end(self, planned: int) -> None:
        if planned != self._planned:
            return
        self._advance()
        ended = [heapq.heappop(self._under_way)]
        # Set the pipe's own time to that transfer's end exactly; the computed value may differ in the last digit.
        self._advanced = ended[0][0]
        while self._under_way and self._under_way[0][0] <= self._advanced:
            ended.append(heapq.heappop(self._under_way))
        self._plan()
        for _, _, done, arguments in ended:
            done(*arguments)


class Network:
    """The connections between the workers and the servers of one job."""

    def __init__(
        self,
        kernel: Kernel,
        links: list[Link],
        servers: list[ServerSpec],
        exchanges: Disturbances | None = None,
        *,
        seed: int = 0,
        beside: int = 0,
    ) -> None:
        """``exchanges``: the disturbances of each worker's exchanges with each server, indexed by worker times servers
        + server. ``beside``: the first ``beside`` servers run on the workers' machines in turn and share their links.
        """
        self._beside = beside
        self._kernel, self._links, self._servers, self._exchanges = kernel, links, servers, exchanges
        self._drawn_s = {rank: draw(link.recorded_s, seed) for rank, link in enumerate(links) if link.recorded_s}
        self._constant = [link.bytes_per_s is None and not link.changes and not link.recorded_s for link in links]
        self._latencies_s = np.array([link.latency_s for link in links]) if all(self._constant) else None
        self.is_shared = any(server.bytes_per_s is not None for server in servers)
        """Whether transfers of several workers slow each other down."""
        self._pipes: list[tuple[Pipe, Pipe] | None] = [self._pipe(server) for server in servers]
        self._iteration = 0
        """The last iteration that a worker has exchanged for."""

    def direct_s(self, rank: int, size: int, iteration: int) -> float:
        """Time of a transfer of ``size`` bytes if only the worker's own link limits it."""
        link = self._links[rank]
        if self._constant[rank]:
            return link.latency_s
        if link.recorded_s:
            return self._drawn_s[rank][iteration % DRAWN]
        bandwidth = link.bandwidth(iteration, self._kernel.now)
        return link.latency_s + (size / bandwidth if bandwidth is not None else 0.0)

    def direct_all_s(self, ranks: NDArray[np.int64], size: int, iteration: int) -> NDArray[np.float64]:
        """``direct_s`` of those ranks."""
        if self._latencies_s is not None:
            return self._latencies_s[ranks]
        return np.array([self.direct_s(rank, size, iteration) for rank in ranks.tolist()])

    def way_s(self, one: int, other: int) -> float:
        """Time of a short message from one worker to another."""
        return self._links[one].latency_s + self._links[other].latency_s

    def transfer(
        self, rank: int, sizes: Mapping[int, int], iteration: int, direction: int, done: Callable[..., None], *args: Any
    ) -> dict[int, float]:
        """Transfer ``sizes`` bytes to (0: push) or from (1: pull) each server; ``done(*args)`` is called when all have
        arrived.

        Then the time of each server, in seconds, is available.
        """
        arrival = _Arrival(self._kernel, len(sizes) + 1, done, args)
        self.over_link(rank, sizes, iteration, arrival.one)
        for server, size in sizes.items():
            pipes = self._pipes[server]
            if pipes is None:
                arrival.of(server)
            else:
                pipes[direction].send(self._wavering(rank, server, iteration) * size, self._arrived, server, arrival)
        return arrival.took_s

    def over_link(self, rank: int, sizes: Mapping[int, int], iteration: int, done: Callable[[], None]) -> None:
        """Transfer ``sizes`` over the worker's own link only; changes of servers at ``iteration`` take effect."""
        if iteration > self._iteration:
            self._reach(iteration)
        self._kernel.after(self.direct_s(rank, self._on_link(rank, sizes), iteration), done)

    def send(self, rank: int, server: int, size: int, iteration: int, direction: int, done: Callable[[], None]) -> None:
        """Transfer one block from or to a server, without latency, since blocks follow each other."""
        pipes = self._pipes[server]
        if pipes is None:
            done()
        else:
            pipes[direction].send(self._wavering(rank, server, iteration) * size, done)

    def latency_s(self, server: int) -> float:
        """One-way latency of an exchange with that server."""
        return self._servers[server].latency_s

    def after_latency(self, server: int, done: Callable[[], None]) -> None:
        """Call ``done`` after that latency."""
        if latency_s := self.latency_s(server):
            self._kernel.after(latency_s, done)
        else:
            done()

    def _on_link(self, rank: int, sizes: Mapping[int, int]) -> int:
        """Bytes on a worker's link, each way, while all workers exchange the same sizes in both directions.

        Exchanges with servers on its own machine use no link; exchanges of others with these servers use its link.
        """
        workers = len(self._links)
        here = sum(size for server, size in sizes.items() if server < self._beside and server % workers == rank)
        return sum(sizes.values()) + (workers - 2) * here

    def between_s(self, source: int, destination: int, size: int) -> float:
        """Time of ``size`` bytes from server to server, at the rate of the slower one."""
        ends = self._servers[source], self._servers[destination]
        rates = [spec.rate_at(self._kernel.now, self._iteration) for spec in ends]
        known = [rate for rate in rates if rate is not None]
        return ends[0].latency_s + ends[1].latency_s + (size / min(known) if known else 0.0)

    def _arrived(self, server: int, arrival: "_Arrival") -> None:
        self.after_latency(server, partial(arrival.of, server))

    def _wavering(self, rank: int, server: int, iteration: int) -> float:
        if self._exchanges is None:
            return 1.0
        return self._exchanges.factor(rank * len(self._servers) + server, iteration)

    def _pipe(self, server: ServerSpec) -> tuple[Pipe, Pipe] | None:
        if server.bytes_per_s is None:
            return None
        sums = server.sums_bytes_per_s if server.sums_bytes_per_s is not None else server.bytes_per_s
        pipes = Pipe(self._kernel, min(server.bytes_per_s, sums)), Pipe(self._kernel, server.bytes_per_s)
        for change in server.changes:
            for pipe in pipes:
                if change.from_s is not None:
                    self._kernel.at(change.from_s, pipe.limit, change.bytes_per_s)
        return pipes

    def _reach(self, iteration: int) -> None:
        """Apply the changes up to that iteration."""
        for pipes, server in zip(self._pipes, self._servers, strict=False):
            for change in server.changes:
                if pipes is not None and self._iteration < (change.from_iteration or 0) <= iteration:
                    for pipe in pipes:
                        pipe.limit(change.bytes_per_s)
        self._iteration = iteration


class _Arrival:
    """Counts the parts of one transfer."""

    __slots__ = ("_args", "_began_s", "_done", "_kernel", "_left", "took_s")

    def __init__(self, kernel: Kernel, parts: int, done: Callable[..., None], args: tuple[Any, ...]) -> None:
        self._kernel, self._began_s = kernel, kernel.now
        self._left, self._done, self._args = parts, done, args
        self.took_s: dict[int, float] = {}

    def of(self, server: int) -> None:
        self.took_s[server] = self._kernel.now - self._began_s
        self.one()

    def one(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._done(*self._args)
