"""Simulated processes behind a real relay, which runs in a separate process, as in an agent; its CPU counts.

``python -m benchmarks.live.relaying URL FOLDER`` is that process; it takes the agent's credential from standard input.
"""

import asyncio
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Final, Self

from websockets.exceptions import ConnectionClosed
from websockets.frames import Close

from controlplane.protocol.addresses import parse_address
from controlplane.protocol.orders import ProcessOrder
from controlplane.runtime.embedded.control_plane import CHECKOUT
from workers.control.connection import BEAT_S
from workers.relay.framing import BEAT, CLOSE, FRAME, OPEN, TO_PROCESS, Frames, code_of, packed
from workers.relay.process import LocalRoute
from workers.relay.relay import Relay

LOST: Final = 1006


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningRelay:
    """A relay of one machine."""

    path: Path
    pid: int


@contextmanager
def running_relay(base: str, credential: str) -> Iterator[RunningRelay]:
    """Start a relay to the control plane at ``base``; it ends with the block."""
    with TemporaryDirectory(prefix="paceline-") as folder:
        command = [sys.executable, "-m", "benchmarks.live.relaying", base, folder]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=CHECKOUT, text=True) as relay:
            assert relay.stdin is not None
            assert relay.stdout is not None
            relay.stdin.write(credential + "\n")
            relay.stdin.flush()
            try:
                path = relay.stdout.readline().strip()
                if not path:
                    raise RuntimeError("the relay of the bench did not start; its error is above")
                yield RunningRelay(path=Path(path), pid=relay.pid)
            finally:
                relay.stdin.close()  # which ends it


class LocalSocket(asyncio.Protocol):
    """The local connection of one simulated process, used as one of websockets' connections."""

    def __init__(self) -> None:
        self._frames = Frames(TO_PROCESS)
        self._received: deque[bytes] = deque()
        self._arrival: asyncio.Future[None] | None = None
        self._code: int | None = None
        self._is_open = False
        self._transport: asyncio.WriteTransport

    @classmethod
    async def open(cls, path: Path, order: ProcessOrder) -> Self:
        """Connect as the process of ``order``."""
        loop = asyncio.get_running_loop()
        _, socket = await loop.create_unix_connection(cls, str(path))
        socket._transport.write(packed(OPEN, LocalRoute.of(order, path).opening))
        while not socket._is_open:
            await socket._wait()
        return socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        for kind, payload in self._frames.feed(data):
            if kind == FRAME:
                self._received.append(payload)
            elif kind == OPEN:
                self._is_open = True
            elif kind == CLOSE:
                self._code = code_of(payload)
        self._notify()

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the loop."""
        self._code = self._code or LOST
        self._notify()

    async def send(self, frame: bytes) -> None:
        """Send a frame."""
        if self._code is not None:
            raise self._ended()
        self._transport.write(packed(FRAME, frame))

    async def recv(self, *, decode: bool = False) -> bytes:
        """The next frame."""
        while not self._received:
            await self._wait()
        return self._received.popleft()

    async def send_beats(self) -> None:
        """Less often than real processes, as long as the connection lasts.

        Here relays of a hundred machines share the cores with the control plane; it receives the same reports.
        """
        while self._code is None:
            self._transport.write(packed(BEAT))
            await asyncio.sleep(1.5 * BEAT_S)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await self.recv()
        except ConnectionClosed:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._transport.close()

    async def _wait(self) -> None:
        if self._code is not None:
            raise self._ended()
        self._arrival = asyncio.get_running_loop().create_future()
        await self._arrival

    def _notify(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def _ended(self) -> ConnectionClosed:
        return ConnectionClosed(Close(self._code or LOST, ""), None)


def main(url: str, folder: Path) -> None:
    """Run the relay until standard input ends."""
    credential = sys.stdin.readline().strip()
    relay = Relay(parse_address(url), {"Authorization": f"Bearer {credential}"}, folder)
    relay.start()
    sys.stdout.write(f"{relay.path}\n")
    sys.stdout.flush()
    sys.stdin.read()
    relay.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
