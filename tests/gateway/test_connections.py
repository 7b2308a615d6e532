"""When senders receive the number up to which their messages are durable."""

from typing import Any

import msgspec
import pytest

from benchmarks.live.load_agent import report
from controlplane.gateway.connections import GATHERING_SOCKETS, MOST_TURNS, JobConnections, Peer
from controlplane.protocol.codec import to_worker
from controlplane.protocol.messages import WorkerFinished
from controlplane.runtime.executor import Frame, encode_frames

ORDERS = b"orders"


class Wire:
    """What is put on a socket."""

    def __init__(self) -> None:
        self.frames: list[Any] = []

    def put(self, data: bytes, slot: str = "", sent: object = None) -> None:
        self.frames.append(to_worker.decode(data).number if slot == "durable" else data)


def peer(rank: int = 0) -> Peer:
    return Peer(job=7, role="worker", index=rank, instance=f"w{rank}.0.1")


@pytest.fixture
def connections() -> JobConnections:
    caller: Any = None
    return JobConnections(caller, 7)


@pytest.fixture
def wire(connections: JobConnections) -> Wire:
    wire: Any = Wire()
    connections.enter(peer(), wire)
    return wire


def note(connections: JobConnections, number: int, rank: int = 0) -> None:
    connections.note_durable(msgspec.msgpack.encode({f"w{rank}.0.1": number}))


def deliver(connections: JobConnections) -> None:
    connections.deliver(encode_frames([Frame("worker", 0, "w0.0.1", "orders", ORDERS)]))


def test_a_process_that_reports_receives_it_with_its_orders(connections: JobConnections, wire: Wire) -> None:
    connections.heard(peer(), report(2, 0))
    note(connections, 1)
    note(connections, 2)
    connections.send_durable()
    assert wire.frames == []
    deliver(connections)
    connections.send_durable()
    deliver(connections)
    assert wire.frames == [ORDERS, 2, ORDERS]


def test_without_orders_it_waits_for_a_few_turns_only(connections: JobConnections, wire: Wire) -> None:
    connections.heard(peer(), report(2, 0))
    for number in range(1, MOST_TURNS + 2):
        note(connections, number)
        assert wire.frames == []
        connections.send_durable()
    assert wire.frames == [MOST_TURNS + 1]
    connections.send_durable()
    assert len(wire.frames) == 1


def test_a_process_at_its_end_receives_it_at_the_next_turn(connections: JobConnections, wire: Wire) -> None:
    connections.heard(peer(), report(2, 0))
    connections.heard(peer(), WorkerFinished(number=3, iteration=1, model_saved=False))
    note(connections, 3)
    connections.send_durable()
    assert wire.frames == [3]


def test_numbers_of_processes_that_are_elsewhere_are_not_kept(connections: JobConnections, wire: Wire) -> None:
    note(connections, 5, rank=1)
    connections.send_durable()
    other: Any = Wire()
    connections.enter(peer(1), other)
    connections.send_durable()
    assert (wire.frames, other.frames) == ([], [])


def test_a_connection_gets_no_number_of_the_one_before(connections: JobConnections, wire: Wire) -> None:
    connections.heard(peer(), report(2, 0))
    note(connections, 2)
    before: Any = wire
    connections.leave(peer(), before)
    again: Any = Wire()
    connections.enter(peer(), again)
    deliver(connections)
    connections.send_durable()
    assert again.frames == [ORDERS]


def test_a_job_of_many_processes_gathers_its_messages(connections: JobConnections) -> None:
    sockets: list[Any] = [Wire() for _ in range(GATHERING_SOCKETS)]
    for rank, socket in enumerate(sockets):
        assert not connections.appender.gathers
        connections.enter(peer(rank), socket)
    assert connections.appender.gathers
    connections.leave(peer(0), sockets[0])
    assert not connections.appender.gathers
