"""Sends numbered ticks to all open pages, at most two per second."""

import asyncio
import time
from collections.abc import Collection
from typing import Final

import msgspec

from controlplane.gateway import close_codes
from controlplane.gateway.sockets import Socket
from controlplane.protocol.pages import Tick

INTERVAL_S: Final = 0.5
"""Shortest interval between two ticks."""

_decoder = msgspec.json.Decoder(Tick)
_encoder = msgspec.json.Encoder()


class Broadcaster:
    """Merges the changes between two ticks and renumbers them, so that a gap in the numbers means a lost tick."""

    def __init__(self) -> None:
        self.sockets: dict[Socket, str] = {}
        """The session key of each."""
        self._jobs: dict[int, str] = {}
        self._states: dict[int, str] = {}
        self._fleet = False
        self._alerts = False
        self._sequence = 0
        self._moved = asyncio.Event()

    def take(self, data: bytes) -> None:
        """A change was published in Redis."""
        tick = _decoder.decode(data)
        self._jobs |= tick.jobs
        self._states |= tick.jobs
        self._fleet |= tick.fleet
        self._alerts |= tick.alerts
        self._moved.set()

    def enter(self, socket: Socket, session: str) -> None:
        """A page opened: send it the current sequence number."""
        self.sockets[socket] = session
        socket.put(self._tick({}, fleet=False))

    def leave(self, socket: Socket) -> None:
        """A page closed."""
        self.sockets.pop(socket, None)

    def keep(self, checked: Collection[str], admitted: Collection[str]) -> None:
        """Close the sockets of checked sessions that are not admitted."""
        for socket, session in self.sockets.items():
            if session in checked and session not in admitted:
                socket.close(close_codes.UNAUTHORISED)

    def refresh(self, socket: Socket) -> None:
        """A page missed ticks: send it the current state of every job seen by this process."""
        socket.put(self._tick(self._states, fleet=True, alerts=True))

    async def run(self) -> None:
        """Send a tick after a change, then pause."""
        while True:
            await self._moved.wait()
            self._moved.clear()
            jobs, fleet, alerts = self._jobs, self._fleet, self._alerts
            self._jobs, self._fleet, self._alerts = {}, False, False
            self._sequence += 1
            text = self._tick(jobs, fleet=fleet, alerts=alerts)
            for socket in list(self.sockets):
                socket.put(text)
            await asyncio.sleep(INTERVAL_S)

    def _tick(self, jobs: dict[int, str], *, fleet: bool, alerts: bool = False) -> str:
        at_ms = int(time.time() * 1000)
        tick = Tick(seq=self._sequence, at_ms=at_ms, jobs=jobs, fleet=fleet, alerts=alerts)
        return _encoder.encode(tick).decode()
