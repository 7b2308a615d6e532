"""The pages that are open: all get the same numbered ticks, at most two a second."""

import asyncio
import time
from collections.abc import Collection
from typing import Final

import msgspec

from controlplane.gateway import closing
from controlplane.gateway.sockets import Socket
from controlplane.protocol.pages import Tick

PAUSE_S: Final = 0.5
"""Between two ticks."""

_decoder = msgspec.json.Decoder(Tick)
_encoder = msgspec.json.Encoder()


class Audience:
    """Merges what Redis says between two ticks, and numbers ticks anew, so that a gap means that one was lost."""

    def __init__(self) -> None:
        self.sockets: dict[Socket, str] = {}
        """With the key of its session."""
        self._jobs: dict[int, str] = {}
        self._states: dict[int, str] = {}
        self._fleet = False
        self._sequence = 0
        self._moved = asyncio.Event()

    def take(self, data: bytes) -> None:
        """Something moved."""
        tick = _decoder.decode(data)
        self._jobs |= tick.jobs
        self._states |= tick.jobs
        self._fleet |= tick.fleet
        self._moved.set()

    def enter(self, socket: Socket, session: str) -> None:
        """A page opened: it learns where the numbers stand."""
        self.sockets[socket] = session
        socket.put(self._tick({}, fleet=False))

    def leave(self, socket: Socket) -> None:
        """A page closed."""
        self.sockets.pop(socket, None)

    def keep(self, asked: Collection[str], admitted: Collection[str]) -> None:
        """Of the sessions asked about only these may listen on."""
        for socket, session in self.sockets.items():
            if session in asked and session not in admitted:
                socket.close(closing.UNAUTHORISED)

    def refresh(self, socket: Socket) -> None:
        """A page missed something: name everything that moved since this process began."""
        socket.put(self._tick(self._states, fleet=True))

    async def run(self) -> None:
        """Send a tick when something moved, then pause."""
        while True:
            await self._moved.wait()
            self._moved.clear()
            jobs, fleet = self._jobs, self._fleet
            self._jobs, self._fleet = {}, False
            self._sequence += 1
            text = self._tick(jobs, fleet=fleet)
            for socket in list(self.sockets):
                socket.put(text)
            await asyncio.sleep(PAUSE_S)

    def _tick(self, jobs: dict[int, str], *, fleet: bool) -> str:
        tick = Tick(seq=self._sequence, at_ms=int(time.time() * 1000), jobs=jobs, fleet=fleet)
        return _encoder.encode(tick).decode()
