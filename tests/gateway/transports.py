"""The two ways in which a process holds its conversation with the gateway: its websocket, and a channel of a relay."""

import asyncio
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Protocol, Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.frames import Close

from controlplane.protocol.codec import encode
from controlplane.protocol.keys import process_key
from controlplane.protocol.orders import Role
from controlplane.protocol.relay import Batch, Opening, to_relay
from controlplane.runtime import names
from controlplane.runtime.redis import Client

Claims = tuple[Role, int, str]


def knock(
    gateway: str,
    job: int,
    *,
    role: Role = "worker",
    index: int = 0,
    instance: str = "w0.0.1",
    claims: tuple[Role, int, str] | None = None,
    protocol: str = "paceline.v1",
) -> Any:
    """A connection of that process, with the key of ``claims`` (its own unless told otherwise)."""
    key = process_key(b"k" * 32, *(claims or (role, index, instance)))
    headers = {"Authorization": f"Bearer {key.hex()}", "X-Paceline-Instance": instance}
    return connect(
        f"{gateway}/ws/{role}/{job}/{index}", additional_headers=headers, subprotocols=[protocol], compression=None
    )


async def close_code(socket: ClientConnection) -> int | None:
    async with asyncio.timeout(30):
        await socket.wait_closed()
    return socket.close_code


async def eventually(look: Callable[[], Any]) -> Any:
    async with asyncio.timeout(30):
        while not (found := look()):
            await asyncio.sleep(0.005)
    return found


class Enter(Protocol):
    """A conversation of that process, as ``knock``; its result is used as one of websockets' connections."""

    def __call__(
        self,
        job: int,
        *,
        role: Role = "worker",
        index: int = 0,
        instance: str = "w0.0.1",
        claims: Claims | None = None,
    ) -> Any: ...


class Machine:
    """An agent's relay, by hand: one connection, any number of channels."""

    def __init__(self, gateway: str, credential: str) -> None:
        self._headers = {"Authorization": f"Bearer {credential}"}
        self._url = f"{gateway}/ws/relay"
        self.batches: list[Batch] = []
        """What came so far."""
        self._channels: dict[int, Conversation] = {}
        self._numbers: Iterator[int] = iter(range(1, 1_000_000))
        self.socket: ClientConnection

    async def __aenter__(self) -> Self:
        self.socket = await connect(
            self._url, additional_headers=self._headers, subprotocols=["paceline.v1"], compression=None, max_size=2**25
        )
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.socket.close()
        await self._reading

    async def send(
        self,
        opened: list[tuple[int, bytes]] | None = None,
        frames: list[tuple[int, bytes]] | None = None,
        closed: list[tuple[int, int]] | None = None,
        alive: list[int] | None = None,
    ) -> None:
        """One batch."""
        await self.socket.send(encode(Batch(opened or [], frames or [], closed or [], alive or [])))

    def channel(self, opening: Opening) -> "Conversation":
        """A conversation on a channel of its own."""
        number = next(self._numbers)
        conversation = self._channels[number] = Conversation(self, number, opening)
        return conversation

    async def _read(self) -> None:
        try:
            while True:
                batch = to_relay.decode(await self.socket.recv(decode=False))
                self.batches.append(batch)
                for number, frame in batch.frames:
                    self._channels[number].received.put_nowait(frame)
                for number, code in batch.closed:
                    self._channels[number].ended(code)
        except ConnectionClosed:
            for conversation in self._channels.values():
                conversation.ended(1006)


class Conversation:
    """A channel, used as one of websockets' connections."""

    def __init__(self, machine: Machine, number: int, opening: Opening) -> None:
        self._machine, self.number, self._opening = machine, number, opening
        self.received: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._over = asyncio.Event()
        self.close_code: int | None = None

    async def __aenter__(self) -> Self:
        await self._machine.send(opened=[(self.number, encode(self._opening))])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._over.is_set():
            await self._machine.send(closed=[(self.number, 0)])

    def ended(self, code: int) -> None:
        if self.close_code is None:
            self.close_code = code
            self._over.set()
            self.received.put_nowait(None)

    async def send(self, frame: bytes | str) -> None:
        if self._over.is_set():
            raise ConnectionClosed(Close(self.close_code or 1006, ""), None)
        await self._machine.send(frames=[(self.number, frame.encode() if isinstance(frame, str) else frame)])

    async def recv(self, *, decode: bool = False) -> bytes:
        frame = await self.received.get()
        if frame is None:
            raise ConnectionClosed(Close(self.close_code or 1006, ""), None)
        return frame

    async def wait_closed(self) -> None:
        await self._over.wait()


def opening(
    job: int,
    *,
    role: Role = "worker",
    index: int = 0,
    instance: str = "w0.0.1",
    claims: Claims | None = None,
) -> Opening:
    """What that process says first, with the key of ``claims`` (its own unless told otherwise)."""
    key = process_key(b"k" * 32, *(claims or (role, index, instance)))
    return Opening(job=job, role=role, index=index, instance=instance, key=key.hex())


def runs_here(client: Client, agent: int, job: int, *, role: Role, index: int, instance: str) -> None:
    """Have the machine of that agent run the process."""
    client.sadd(names.agent_started(agent), f"{job}:{role}:{index}:{instance}")
