"""A real relay between real links and a websocket peer: what it carries, and what processes do without it."""

import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from http import HTTPStatus
from pathlib import Path
from random import Random

import pytest

from controlplane.protocol.codec import encode
from controlplane.protocol.messages import Heartbeat
from controlplane.protocol.relay import MAX_RELAYED_BYTES
from tests.support.waiting import eventually
from tests.workers.agent.peer import ControlPeer
from tests.workers.agent.values import hello, orders, process_order, report
from workers.addresses import control_plane
from workers.backoff import Backoff
from workers.control.connection import ConnectionEnded
from workers.control.links import WorkerControl
from workers.processes import route_of
from workers.relay import process, relay
from workers.relay.framing import (
    BEAT,
    CLOSE,
    FRAME,
    OPEN,
    REPORTS_BEATS,
    TO_AGENT,
    TO_PROCESS,
    VARIABLE,
    Frames,
    code_of,
    packed,
)
from workers.relay.process import LocalConnection, LocalRoute
from workers.relay.relay import Relay, socket_path

Link = Callable[[int], WorkerControl]


@pytest.fixture
def peer() -> Iterator[ControlPeer]:
    with ControlPeer() as peer:
        yield peer


@pytest.fixture
def running(peer: ControlPeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Relay]:
    """A relay that processes find."""
    running = Relay(control_plane(peer.url), {"Authorization": "Bearer agent"}, tmp_path)
    running.start()
    eventually(lambda: peer.relays, what="the relay")
    monkeypatch.setenv(VARIABLE, str(running.path))
    yield running
    running.close()


@pytest.fixture
def agent_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A socket that processes take for an agent's; the test answers on it."""
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        monkeypatch.setenv(VARIABLE, str(path))
        yield listening


@pytest.fixture
def link(peer: ControlPeer) -> Iterator[Link]:
    """Starts the link of a worker."""
    with ExitStack() as links:

        def start(rank: int = 0) -> WorkerControl:
            route = route_of(process_order(rank, instance=f"w{rank}.0.1"), control_plane(peer.url))
            control = WorkerControl(route, backoff=Backoff(Random(1), first_s=0.01, most_s=0.05))
            control.start()
            links.callback(control.close)
            return control

        yield start


def path_of(rank: int = 0) -> str:
    return f"/ws/worker/7/{rank}"


def test_the_processes_of_a_machine_share_one_connection(peer: ControlPeer, running: Relay, link: Link) -> None:
    links = [link(rank) for rank in range(8)]
    for rank, each in enumerate(links):
        each.say(hello)
        session = peer.await_session(path_of(rank))
        session.await_heard(1)
        session.send(orders(1 + rank))
    assert [each.await_orders(lambda _: True, 20.0) for each in links] == [orders(1 + rank) for rank in range(8)]
    assert (len(peer.relays), all(session.relayed for session in peer.sessions)) == (1, True)


def test_the_agent_reports_each_second_which_processes_are_alive(
    peer: ControlPeer, running: Relay, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One message for all of them, in the place of their heartbeats. A process that hangs sends no more beats."""
    monkeypatch.setattr("workers.control.socket.HEARTBEAT_S", 0.001)
    monkeypatch.setattr("workers.control.socket.BEAT_S", 0.001)
    hanging = LocalConnection.open(LocalRoute.of(process_order(7, instance="w7.0.1"), running.path))
    hanging.beat()
    for rank in range(2):
        link(rank).say(hello)
    sessions = [peer.await_session(path_of(rank)) for rank in range(2)]
    for session in sessions:
        session.await_alive(3)
    assert [session.beats for session in sessions] == [[], []]
    assert peer.await_session(path_of(7)).alive == 1
    hanging.release()


def test_a_process_that_was_missing_in_a_report_is_reported_at_its_next_beat(
    peer: ControlPeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "ALIVE_S", 3600.0)
    running = Relay(control_plane(peer.url), {}, tmp_path)
    running.start()
    eventually(lambda: peer.relays, what="the relay")
    connection = LocalConnection.open(LocalRoute.of(process_order(instance="w0.0.1"), running.path))
    for _ in range(5):
        connection.beat()
    connection.send(encode(report(1)))
    session = peer.await_session(path_of())
    session.await_heard(1)
    assert session.alive == 1
    connection.release()
    running.close()


def test_the_agent_of_an_earlier_release_is_sent_heartbeats(link: Link, agent_socket: socket.socket) -> None:
    link(0).say(hello)
    accepted, _ = agent_socket.accept()
    with accepted:
        accepted.sendall(packed(OPEN))
        frames, sent = Frames(TO_AGENT), []
        while encode(Heartbeat()) not in sent:
            for kind, payload in frames.feed(accepted.recv(65_536)):
                if kind == BEAT:
                    accepted.sendall(packed(BEAT))
                sent.append(payload)


def test_a_control_plane_of_an_earlier_release_is_sent_heartbeats(
    tmp_path: Path, link: Link, peer: ControlPeer, running: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.control.socket.HEARTBEAT_S", 0.001)
    peer.takes_beats = False
    peer.relays[0].close(1012)
    eventually(lambda: len(peer.relays) == 2, what="the relay's next connection")
    link(0).say(hello)
    session = peer.await_session(path_of())
    session.await_beats(3)
    assert (session.relayed, session.alive) == (True, 0)


def test_only_the_owner_of_an_agent_can_enter_the_folder_of_its_socket(running: Relay) -> None:
    assert stat.S_IMODE(running.path.parent.stat().st_mode) == 0o700


def test_a_long_path_of_the_state_folder_leads_to_a_short_one_of_the_socket(tmp_path: Path) -> None:
    path = socket_path(tmp_path / ("long" * 40))
    try:
        assert len(os.fsencode(path)) <= relay.MOST_PATH_BYTES
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    finally:
        path.parent.rmdir()


def test_a_relay_that_ends_leaves_no_file(peer: ControlPeer, tmp_path: Path) -> None:
    ended = Relay(control_plane(peer.url), {}, tmp_path)
    ended.start()
    eventually(lambda: peer.relays, what="the relay")
    ended.close()
    assert list(tmp_path.iterdir()) == []


def test_a_socket_that_a_killed_agent_left_is_replaced(peer: ControlPeer, tmp_path: Path) -> None:
    left = tmp_path / "relay" / "socket"
    left.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(left))
    following = Relay(control_plane(peer.url), {}, tmp_path)
    following.start()
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(str(following.path))
    eventually(lambda: peer.relays, what="the relay")
    following.close()


def test_without_an_agent_a_process_connects_by_itself(
    peer: ControlPeer, link: Link, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nobody"))
    link(0).say(hello)
    session = peer.await_session(path_of())
    session.await_heard(1)
    assert not session.relayed


def test_a_process_whose_agent_ends_continues_by_itself(peer: ControlPeer, running: Relay, link: Link) -> None:
    worker = link(0)
    worker.say(hello)
    peer.await_session(path_of()).await_heard(1)
    running.close()
    worker.say(report)
    again = peer.await_session(path_of(), nth=2)
    assert not again.relayed
    assert [message.number for message in again.await_heard(3)] == [1, 2, 3]


def test_a_process_whose_agent_hangs_continues_by_itself(
    peer: ControlPeer, link: Link, agent_socket: socket.socket
) -> None:
    """The agent's socket still accepts connections: its kernel does."""
    link(0).say(hello)
    assert not peer.await_session(path_of()).relayed
    accepted, _ = agent_socket.accept()
    accepted.close()
    answered = link(1)
    answered.say(hello)
    accepted, _ = agent_socket.accept()
    accepted.sendall(packed(OPEN))  # the last that it ever says
    assert not peer.await_session(path_of(1)).relayed
    accepted.close()


def test_a_process_that_computed_for_long_does_not_take_its_agent_for_hung(
    peer: ControlPeer, running: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sent no beat meanwhile, so none is unanswered."""
    monkeypatch.setattr(process, "SILENT_S", 0.02)
    monkeypatch.setattr(process, "LOOK_S", 0.01)
    connection = LocalConnection.open(LocalRoute.of(process_order(instance="w0.0.1"), running.path))
    session = peer.await_session(path_of())
    later = threading.Timer(0.3, session.send, [orders(1)])
    later.start()
    assert connection.recv() == encode(orders(1))
    later.join()
    connection.beat()
    running.close()
    with pytest.raises(ConnectionEnded):
        connection.recv()
    connection.release()


def test_a_process_that_is_refused_connects_by_itself_and_then_tries_the_agent_again(
    peer: ControlPeer, running: Relay, link: Link
) -> None:
    link(0)
    first = peer.await_session(path_of())
    first.close(4403)
    second = peer.await_session(path_of(), nth=2)
    second.close(1012)
    third = peer.await_session(path_of(), nth=3)
    assert [session.relayed for session in (first, second, third)] == [True, False, True]


def test_after_a_cut_link_processes_come_back_through_the_relay(peer: ControlPeer, running: Relay, link: Link) -> None:
    links = [link(rank) for rank in range(4)]
    for rank, each in enumerate(links):
        each.say(hello)
        peer.await_session(path_of(rank)).await_heard(1)
    peer.relays[0].close(1012)
    for rank, each in enumerate(links):
        each.say(report)
        again = peer.await_session(path_of(rank), nth=2)
        assert again.relayed
        assert [message.number for message in again.await_heard(3)] == [1, 2, 3]
    assert len(peer.relays) == 2


def test_a_relay_that_is_refused_keeps_no_one_waiting(
    tmp_path: Path, link: Link, peer: ControlPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ControlPeer(refuse_with=HTTPStatus.NOT_FOUND) as older:
        refused = Relay(control_plane(older.url), {}, tmp_path)
        refused.start()
        older.await_attempts(1)
        monkeypatch.setenv(VARIABLE, str(refused.path))
        link(0).say(hello)
        session = peer.await_session(path_of())
        session.await_heard(1)
        refused.close()
    assert not session.relayed
    assert older.attempts == 1  # it is asked again after half a minute


def test_an_outage_of_a_proxy_keeps_no_relay_away(tmp_path: Path) -> None:
    with ControlPeer(refuse_with=HTTPStatus.BAD_GATEWAY) as peer:
        returning = Relay(control_plane(peer.url), {}, tmp_path)
        returning.start()
        peer.await_attempts(2)
        peer.refuse_with = None
        eventually(lambda: peer.relays, what="the relay", seconds=5)
        returning.close()


def test_a_new_credential_is_shown_at_the_next_handshake(peer: ControlPeer, running: Relay) -> None:
    eventually(lambda: peer.relays, what="the relay")
    running.prove_with({"Authorization": "Bearer another"})
    peer.relays[0].close(1012)
    eventually(lambda: len(peer.relays) == 2, what="the next connection")
    shown = [each.request.headers["Authorization"] for each in peer.relays if each.request is not None]
    assert shown == ["Bearer agent", "Bearer another"]


def local(running: Relay, rank: int = 0) -> socket.socket:
    """A process by hand, whose channel is open."""
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(20.0)
    stream.connect(str(running.path))
    opening = LocalRoute.of(process_order(rank, instance=f"w{rank}.0.1"), running.path).opening
    stream.sendall(packed(OPEN, opening))
    assert stream.recv(100) == packed(OPEN, REPORTS_BEATS)
    return stream


def heard(stream: socket.socket) -> list[tuple[int, bytes]]:
    """Everything up to the end."""
    frames, found = Frames(TO_PROCESS), []
    with suppress(ConnectionResetError):  # what was sent was not read
        while data := stream.recv(1 << 16):
            found += frames.feed(data)
    return found


@pytest.mark.parametrize(
    "nonsense",
    [b"\x00" * 10, packed(OPEN, b"again"), packed(CLOSE, b"\x00\x01"), packed(FRAME, b"\0" * (MAX_RELAYED_BYTES + 1))],
)
def test_a_process_that_makes_no_sense_is_disconnected_and_its_neighbours_are_not(
    peer: ControlPeer, running: Relay, link: Link, nonsense: bytes
) -> None:
    neighbour = link(1)
    neighbour.say(hello)
    peer.await_session(path_of(1)).await_heard(1)
    with local(running) as stream:
        with suppress(BrokenPipeError):
            stream.sendall(nonsense)
        ((kind, payload),) = heard(stream)
    assert (kind, code_of(payload)) == (CLOSE, relay.OVERSIZED)
    peer.await_session(path_of()).await_over()
    neighbour.say(report)
    peer.await_session(path_of(1)).await_heard(2)


def test_frames_before_the_opening_are_refused(peer: ControlPeer, running: Relay) -> None:
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(20.0)
        stream.connect(str(running.path))
        stream.sendall(packed(FRAME, encode(hello(1))))
        assert [kind for kind, _ in heard(stream)] == [CLOSE]
    assert peer.sessions == []


def test_beats_are_not_forwarded(peer: ControlPeer, running: Relay) -> None:
    with local(running) as stream:
        stream.sendall(packed(BEAT))
        assert stream.recv(100) == packed(BEAT)
    session = peer.await_session(path_of())
    session.await_over()
    assert (session.heard, session.beats) == ([], [])


def test_a_process_that_reads_nothing_is_disconnected(
    peer: ControlPeer, running: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "MOST_UNREAD_BYTES", 1_000)
    with local(running):
        session = peer.await_session(path_of())
        while not session.over:
            session.send_raw(b"\0" * 100_000)


def test_while_the_control_plane_reads_nothing_processes_are_not_read_and_nothing_is_lost(
    peer: ControlPeer, running: Relay, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "MOST_WAITING_BYTES", 1_000)
    monkeypatch.setattr(process, "SILENT_S", 20.0)
    worker = link(0)
    worker.say(hello)
    for _ in range(500):
        worker.say(report)
    numbers = [message.number for message in peer.await_session(path_of()).await_heard(501)]
    assert numbers == list(range(1, 502))
