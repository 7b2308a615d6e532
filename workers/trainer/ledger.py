"""Measures this worker's exchange with each server in the current iteration, and its delay by moving blocks."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from controlplane.protocol.messages import BlockExchanged, Exchanged

REPORT_EVERY_S = 1.0
"""Measurements per block are reported at most this often: there may be hundreds, and
iterations of a few milliseconds.
"""


@dataclass(slots=True)
class _Entry:
    pulled: int = 0
    pushed: int = 0
    pull_s: float = 0.0
    push_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class _OfBlock:
    """Measurements of one block on one server since the last report of blocks."""

    server: int
    size: int
    push_s: float = 0.0
    pull_s: float = 0.0
    pushes: int = 0
    pulls: int = 0


class Ledger:
    """Sums until they are read. Probes are added by a separate thread, everything else by the trainer's."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._entries: dict[int, _Entry] = defaultdict(_Entry)
        self._blocks: dict[int, _OfBlock] = {}
        self._reported_at = now()
        self._moving_s = 0.0
        self._lock = threading.Lock()
        self._probes: list[Exchanged] = []

    def saw_blocks(
        self,
        server: int,
        sizes: Mapping[int, int],
        *,
        pushed: Mapping[int, float] = {},
        pulled: Mapping[int, float] = {},
    ) -> None:
        """Add the duration of each of these blocks; ``sizes`` in bytes."""
        for block in pushed.keys() | pulled.keys():
            seen = self._blocks.get(block)
            if seen is None or seen.server != server:
                seen = self._blocks[block] = _OfBlock(server=server, size=sizes[block])
            if block in pushed:
                seen.push_s += pushed[block]
                seen.pushes += 1
            if block in pulled:
                seen.pull_s += pulled[block]
                seen.pulls += 1

    def take_blocks(self) -> list[BlockExchanged]:
        """Return every block that was pushed and pulled since the last result, if that is ``REPORT_EVERY_S`` ago."""
        now = self._now()
        if now - self._reported_at < REPORT_EVERY_S:
            return []
        self._reported_at = now
        exchanged = [
            BlockExchanged(
                block=block,
                server=seen.server,
                bytes=seen.size,
                push_s=seen.push_s / seen.pushes,
                pull_s=seen.pull_s / seen.pulls,
                exchanges=min(seen.pushes, seen.pulls),
            )
            for block, seen in sorted(self._blocks.items())
            if seen.pushes and seen.pulls
        ]
        self._blocks.clear()
        return exchanged

    def pulled(self, server: int, size: int, seconds: float) -> None:
        """Add bytes received from ``server``."""
        entry = self._entries[server]
        entry.pulled += size
        entry.pull_s += seconds

    def pushed(self, server: int, size: int, seconds: float) -> None:
        """Add bytes pushed to ``server`` and counted there."""
        entry = self._entries[server]
        entry.pushed += size
        entry.push_s += seconds

    def probed(self, server: int, size: int, seconds: float) -> None:
        """Add bytes sent to ``server`` and back, as a probe."""
        with self._lock:
            self._probes.append(Exchanged(server=server, bytes=size, push_s=seconds, pull_s=0.0, is_probe=True))

    def held_by_move(self, seconds: float) -> None:
        """Add the time for which a server delayed a push or pull until its block had moved."""
        self._moving_s += seconds

    @contextmanager
    def moving(self) -> Iterator[None]:
        """The time in this context counts as waiting for moving blocks."""
        began = self._now()
        try:
            yield
        finally:
            self._moving_s += self._now() - began

    def take(self) -> list[Exchanged]:
        """Return every complete exchange; one that was interrupted by a refresh or a move is not a measurement."""
        whole = [
            Exchanged(server=server, bytes=entry.pushed, push_s=entry.push_s, pull_s=entry.pull_s)
            for server, entry in sorted(self._entries.items())
            if entry.pushed == entry.pulled > 0
        ]
        self._entries.clear()
        with self._lock:
            probes, self._probes = self._probes, []
        return whole + probes

    def take_moving_s(self) -> float:
        """Return how long moving blocks delayed this worker."""
        seconds, self._moving_s = self._moving_s, 0.0
        return seconds
