"""One socket's sending side: newest orders only, and no patience with readers that do not read."""

import asyncio
import time
from typing import Any

from controlplane.gateway import sockets
from controlplane.gateway.sockets import Message, Socket


class Peer:
    """The other side of a socket, by hand."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self.ended = asyncio.Event()
        self.asked = asyncio.Event()
        """Something is on its way."""

    async def receive(self) -> Message:
        await self.ended.wait()
        return {"type": "websocket.disconnect", "code": 1000}

    async def send(self, message: Message) -> None:
        self.asked.set()
        await self.reads.wait()
        self.sent.append(message)


async def nobody(message: Message) -> None:
    raise AssertionError(message)


def running(peer: Peer) -> tuple[Socket, "asyncio.Task[None]"]:
    socket = Socket(peer.receive, peer.send)
    return socket, asyncio.create_task(socket.run(nobody))


def sent(*frames: bytes) -> list[dict[str, Any]]:
    return [{"type": "websocket.send", "bytes": frame} for frame in frames]


async def test_goodbye_is_sent_once() -> None:
    """What fails after the end of a connection says goodbye again, and a second close frame is an error."""
    peer = Peer()
    socket, task = running(peer)
    socket.close(4408)
    await task
    await socket.send_close(1013)
    assert peer.sent == [{"type": "websocket.close", "code": 4408}]


async def test_newer_orders_replace_older_ones_that_wait() -> None:
    peer = Peer()
    peer.reads.clear()
    socket, task = running(peer)
    socket.put(b"orders 1", "orders")
    await peer.asked.wait()
    for frame, slot in (
        (b"orders 2", "orders"),
        (b"refusal", ""),
        (b"orders 3", "orders"),
        (b"placement", "placement"),
    ):
        socket.put(frame, slot)
    peer.reads.set()
    while len(peer.sent) < 4:
        await asyncio.sleep(0)
    peer.ended.set()
    await task
    assert peer.sent == sent(b"orders 1", b"orders 3", b"refusal", b"placement")


async def test_after_its_close_code_no_message_is_taken() -> None:
    """They are numbered: what is not taken is sent again over the next connection."""
    peer, taken = Peer(), []

    async def take(message: Message) -> None:
        taken.append(message["bytes"])
        socket.close(1013)

    messages = iter([b"1", b"2"])
    socket = Socket(lambda: _message(next(messages)), peer.send)
    await socket.run(take)
    assert (taken, peer.sent) == ([b"1"], [{"type": "websocket.close", "code": 1013}])


async def _message(data: bytes) -> Message:
    return {"type": "websocket.receive", "bytes": data}


async def test_what_was_put_before_the_end_is_sent_before_it() -> None:
    peer = Peer()
    socket, task = running(peer)
    socket.put(b"refusal")
    socket.close(4413)
    await task
    assert peer.sent == [*sent(b"refusal"), {"type": "websocket.close", "code": 4413}]


async def test_a_client_that_reads_nothing_is_closed_as_too_slow() -> None:
    peer = Peer()
    peer.reads.clear()
    socket, task = running(peer)
    socket.put(b"orders", "orders")
    await peer.asked.wait()
    assert not socket.close_if_slow(time.monotonic())
    assert socket.close_if_slow(time.monotonic() + sockets.SLOW_S)
    peer.reads.set()  # it wakes up at last
    await task
    assert peer.sent == [{"type": "websocket.close", "code": 4408}]


async def test_a_reader_that_is_gone_keeps_no_one_waiting(monkeypatch: Any) -> None:
    monkeypatch.setattr(sockets, "CLOSE_S", 0.01)
    peer = Peer()
    peer.reads.clear()
    socket, task = running(peer)
    socket.put(b"orders", "orders")
    await peer.asked.wait()
    socket.close_if_slow(time.monotonic() + sockets.SLOW_S)
    await asyncio.wait_for(task, 5)
    assert peer.sent == []


async def test_a_machine_that_sends_nothing_is_let_go() -> None:
    peer = Peer()
    socket = Socket(peer.receive, peer.send)
    await socket.run(nobody, first_s=0.01)
    assert peer.sent == [{"type": "websocket.close", "code": 4408}]


async def test_only_the_first_message_has_a_deadline() -> None:
    peer, taken = Peer(), asyncio.Event()
    messages = [{"type": "websocket.receive", "bytes": b""}]

    async def receive() -> Message:
        return messages.pop() if messages else await peer.receive()

    async def take(message: Message) -> None:
        taken.set()

    task = asyncio.create_task(Socket(receive, peer.send).run(take, first_s=0.01))
    await taken.wait()
    done, _ = await asyncio.wait([task], timeout=0.1)
    assert not done
    peer.ended.set()
    await task
    assert peer.sent == []
