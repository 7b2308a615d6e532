"""Links of workers and servers against a real websocket peer."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from random import Random
from typing import Any

import pytest

from controlplane.core.lifecycle import GRACE_MS
from controlplane.protocol.codec import to_worker
from controlplane.protocol.messages import Heartbeat, IterationReport, WorkerHello, WorkerMessage
from controlplane.protocol.orders import Durable, Rejection, ServerOrders
from tests.support.waiting import eventually
from tests.workers.agent.peer import ControlPeer, Session
from tests.workers.agent.values import (
    KEY,
    hello,
    orders,
    placement,
    process_order,
    report,
    server_hello,
    server_orders,
)
from workers.addresses import control_plane
from workers.backoff import Backoff
from workers.control.links import ServerControl, WorkerControl
from workers.control.outbox import Outbox
from workers.control.socket import (
    FAILED,
    FINAL_CODES,
    JOB_OVER,
    REPLACED,
    RETURN_S,
    UNAUTHORISED,
    ControlSocket,
    Ending,
    Handlers,
)
from workers.processes import route_of
from workers.relay.framing import VARIABLE
from workers.relay.relay import HOLD_S, Relay

PATH = "/ws/worker/7/0"


def test_a_long_outage_of_the_control_plane_fails_no_running_worker() -> None:
    backoff = Backoff(most_s=RETURN_S)
    assert 2 * (max(backoff.next_s() for _ in range(1000)) + HOLD_S) <= GRACE_MS / 1000


def quick() -> Backoff:
    return Backoff(Random(1), first_s=0.01, most_s=0.05)


@pytest.fixture
def peer() -> Iterator[ControlPeer]:
    with ControlPeer() as peer:
        yield peer


@pytest.fixture(params=["websocket", "relay"], autouse=True)
def way(
    request: pytest.FixtureRequest, peer: ControlPeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """How processes of these tests reach the control plane: by themselves, or through an agent's relay."""
    if request.param == "relay":
        relay = Relay(control_plane(peer.url), {"Authorization": "Bearer agent"}, tmp_path)
        relay.start()
        eventually(lambda: peer.relays, what="the relay")
        monkeypatch.setenv(VARIABLE, str(relay.path))
    yield request.param
    if request.param == "relay":
        relay.close()


@pytest.fixture
def link(peer: ControlPeer) -> Iterator[WorkerControl]:
    link = WorkerControl(route_of(process_order(), control_plane(peer.url)), backoff=quick())
    link.start()
    yield link
    link.close()


@pytest.fixture
def server_link(peer: ControlPeer) -> Iterator[ServerControl]:
    order = process_order(1, role="server", instance="s1.0.1")
    link = ServerControl(route_of(order, control_plane(peer.url)), backoff=quick())
    link.start()
    yield link
    link.close()


def kinds(messages: list[Any]) -> list[tuple[str, int]]:
    return [(type(message).__name__, message.number) for message in messages]


def until_stopping(link: WorkerControl | ServerControl) -> Ending | None:
    assert link.stopping.wait(20.0)
    return link.ending


def test_a_worker_shows_its_key_and_instance_first(peer: ControlPeer, link: WorkerControl, way: str) -> None:
    session = peer.await_session(PATH)
    assert session.headers["Authorization"] == f"Bearer {KEY}"
    assert session.headers["X-Paceline-Instance"] == "w0.0.1"
    assert session.relayed == (way == "relay")
    assert way == "relay" or session.headers["Sec-WebSocket-Protocol"] == "paceline.v1"


def test_messages_arrive_in_order_with_their_numbers(peer: ControlPeer, link: WorkerControl) -> None:
    for build in (hello, report, report):
        link.say(build)
    heard = peer.await_session(PATH).await_heard(3)
    assert kinds(heard) == [("WorkerHello", 1), ("IterationReport", 2), ("IterationReport", 3)]


def test_heartbeats_begin_with_the_hello_and_are_not_numbered(peer: ControlPeer, link: WorkerControl, way: str) -> None:
    link.say(hello)
    session = peer.await_session(PATH)
    if way == "websocket":
        session.await_beats(2)
    else:
        session.await_alive(2)
    assert kinds(session.heard) == [("WorkerHello", 1)]


def test_a_message_of_a_process_counts_as_a_heartbeat(peer: ControlPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.control.socket.HEARTBEAT_S", 0.001)
    monkeypatch.setattr("workers.control.links.AFTER_MESSAGE_S", 3600.0)
    link = WorkerControl(route_of(process_order(), control_plane(peer.url)), backoff=quick())
    link.start()
    session = peer.await_session(PATH)
    for count in range(1, 61):
        link.say(hello if count == 1 else report)
        session.await_heard(count)
    link.close()
    assert session.beats == []


def test_an_agents_heartbeats_contain_its_load_and_are_sent_beside_any_messages(
    peer: ControlPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.control.socket.HEARTBEAT_S", 0.001)
    outbox: Outbox[WorkerMessage] = Outbox()
    handlers: Handlers[Any] = Handlers(receive=lambda _: None, opened=lambda: None, ended=lambda _: None)
    route = replace(route_of(process_order(), control_plane(peer.url)), local=None)
    socket = ControlSocket(route, outbox, to_worker, handlers, heartbeat=Heartbeat)
    socket.start()
    session = peer.await_session(PATH)
    for count in range(1, 61):
        outbox.say(hello if count == 1 else report)
        session.await_heard(count)
    found = len(session.beats)
    socket.close()
    assert found > 0


def test_after_a_lost_connection_what_is_not_durable_is_sent_again(peer: ControlPeer, link: WorkerControl) -> None:
    for build in (hello, report, report):
        link.say(build)
    first = peer.await_session(PATH)
    first.await_heard(3)
    first.send(Durable(number=2))
    first.send(orders(1))
    assert link.await_orders(lambda _: True, 20.0) == orders(1)
    first.close()
    assert kinds(peer.await_session(PATH, nth=2).await_heard(2)) == [("IterationReport", 3), ("WorkerHello", 4)]


def test_what_is_reported_while_the_control_plane_is_away_is_sent_when_it_is_back(
    link: WorkerControl, peer: ControlPeer
) -> None:
    link.say(hello)
    session = peer.await_session(PATH)
    session.await_heard(1)
    session.send(Durable(number=1))
    session.send(orders(1))
    link.await_orders(lambda _: True, 20.0)
    peer.stop()
    session.await_over()
    link.say(report)
    link.say(report)
    with ControlPeer(peer.port) as back:
        heard = back.await_session(PATH).await_heard(3)
        assert kinds(heard) == [("IterationReport", 2), ("IterationReport", 3), ("WorkerHello", 4)]


def test_orders_outlive_an_outage(link: WorkerControl, peer: ControlPeer) -> None:
    link.say(hello)
    session = peer.await_session(PATH)
    session.send(orders(3, watermark=50))
    assert link.await_orders(lambda _: True, 20.0) is not None
    peer.stop()
    session.await_over()
    assert link.orders() == orders(3, watermark=50)
    assert not link.stopping.is_set()


def test_late_and_repeated_orders_change_nothing(peer: ControlPeer, link: WorkerControl) -> None:
    session = peer.await_session(PATH)
    newest = orders(1, generation=2)
    for each in (orders(7), newest, orders(9), newest, orders(8)):
        session.send(each)
    session.send(placement(1))
    assert link.await_placement(1, 20.0) == placement(1)
    assert link.orders() == newest


def test_orders_of_a_later_incarnation_are_newer_with_any_sequence(peer: ControlPeer, link: WorkerControl) -> None:
    session = peer.await_session(PATH)
    session.send(orders(90))
    session.send(orders(1, incarnation=1, generation=0))
    assert link.await_orders(lambda each: each.incarnation == 1, 20.0) == orders(1, incarnation=1, generation=0)


def test_orders_are_awaited_until_they_are_acceptable(peer: ControlPeer, link: WorkerControl) -> None:
    session = peer.await_session(PATH)
    session.send(orders(1, watermark=2))
    assert link.await_orders(lambda each: each.watermark >= 3, 0.05) is None
    session.send(orders(2, watermark=3))
    assert link.await_orders(lambda each: each.watermark >= 3, 20.0) == orders(2, watermark=3)


def test_a_waiting_thread_is_woken_by_the_order_to_end(link: WorkerControl) -> None:
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(link.await_orders(lambda _: True)))
    waiting.start()
    link.stopping.set()
    waiting.join(20.0)
    assert found == [None]


def test_the_newest_placement_is_kept(peer: ControlPeer, link: WorkerControl) -> None:
    session = peer.await_session(PATH)
    for each in (placement(2), placement(1), placement(2)):
        session.send(each)
    session.send(orders(1))
    link.await_orders(lambda _: True, 20.0)
    assert link.await_placement(1, 20.0) == placement(2)
    assert link.await_placement(3, 0.01) is None


@pytest.mark.parametrize("code", [UNAUTHORISED, REPLACED, JOB_OVER])
def test_a_final_close_code_ends_the_process(peer: ControlPeer, link: WorkerControl, code: int, way: str) -> None:
    peer.await_session(PATH).close(code, "that was it")
    reason = "that was it" if way == "websocket" else FINAL_CODES[code]
    assert until_stopping(link) == Ending(code=code, reason=reason)


@pytest.mark.parametrize("code", [4400, 4408, 4413, 1001, 1011])
def test_any_other_close_code_is_followed_by_a_reconnection(peer: ControlPeer, link: WorkerControl, code: int) -> None:
    peer.await_session(PATH).close(code)
    peer.await_session(PATH, nth=2)
    assert not link.stopping.is_set()


@pytest.mark.parametrize("status", [HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN])
def test_a_refused_handshake_ends_the_process(status: HTTPStatus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with ControlPeer(refuse_with=status) as peer:
        link = WorkerControl(route_of(process_order(), control_plane(peer.url)), backoff=quick())
        link.start()
        ending = until_stopping(link)
        link.close()
    assert ending == Ending(code=UNAUTHORISED, reason=f"the control plane refuses this credential (HTTP {int(status)})")


def test_a_failing_handshake_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with ControlPeer(refuse_with=HTTPStatus.SERVICE_UNAVAILABLE) as peer:
        link = WorkerControl(route_of(process_order(), control_plane(peer.url)), backoff=quick())
        link.start()
        peer.await_attempts(3)
        peer.refuse_with = None
        peer.await_session(PATH)
        link.close()
        assert not link.stopping.is_set()


@pytest.mark.parametrize(("rejected", "code"), [("stale", REPLACED), ("unauthorised", UNAUTHORISED)])
def test_a_rejection_of_this_instance_ends_the_process(
    peer: ControlPeer, link: WorkerControl, rejected: Any, code: int
) -> None:
    peer.await_session(PATH).send(Rejection(code=rejected, detail="instance w0.0.2 has taken over", number=1))
    assert until_stopping(link) == Ending(code=code, reason="instance w0.0.2 has taken over")


def test_a_rejection_of_one_message_ends_nothing(peer: ControlPeer, link: WorkerControl) -> None:
    session = peer.await_session(PATH)
    session.send(Rejection(code="unexpected", detail="iteration 9 was not released", number=2))
    session.send(orders(1))
    assert link.await_orders(lambda _: True, 20.0) == orders(1)
    assert not link.stopping.is_set()


@pytest.mark.parametrize("code", ["malformed", "oversized"])
def test_what_would_be_refused_for_ever_fails_the_process_with_the_reason(
    peer: ControlPeer, link: WorkerControl, code: Any
) -> None:
    detail = "not a message of this socket: Expected `int` >= 1 - at `$.sample_count`"
    peer.await_session(PATH).send(Rejection(code=code, detail=detail))
    assert link.stopping.wait(20.0)
    assert str(link.failure) == f"the control plane cannot accept a message of this process: {detail}"


def test_a_gap_is_filled_by_sending_again(peer: ControlPeer, link: WorkerControl) -> None:
    for build in (hello, report):
        link.say(build)
    session = peer.await_session(PATH)
    session.await_heard(2)
    session.send(Rejection(code="out-of-order", detail="expected 1", number=1))
    assert [message.number for message in session.await_heard(4)] == [1, 2, 1, 2]
    assert not link.stopping.is_set()


def test_what_was_refused_for_now_is_sent_again_a_second_later(peer: ControlPeer, link: WorkerControl) -> None:
    for build in (hello, report, report):
        link.say(build)
    session = peer.await_session(PATH)
    session.await_heard(3)
    session.send(Rejection(code="slow-down", detail="100000 entries wait", number=2))
    assert [message.number for message in session.await_heard(5)] == [1, 2, 3, 2, 3]
    assert not link.stopping.is_set()


def test_a_frame_that_is_no_message_is_ignored(peer: ControlPeer, link: WorkerControl) -> None:
    session = peer.await_session(PATH)
    session.send_raw(b"\xc1 nonsense")
    session.send(orders(1))
    assert link.await_orders(lambda _: True, 20.0) == orders(1)


def test_a_control_socket_that_fails_ends_its_process(peer: ControlPeer, link: WorkerControl) -> None:
    def no_number(number: int) -> Any:
        if number > 1:
            raise ValueError("no second hello")
        return hello(number)

    link.say(no_number)
    session = peer.await_session(PATH)
    session.await_heard(1)
    session.close()
    ending = until_stopping(link)
    assert ending == Ending(code=FAILED, reason="the control socket failed: ValueError('no second hello')")


def test_a_process_that_is_done_waits_until_its_messages_are_durable(peer: ControlPeer, link: WorkerControl) -> None:
    link.say(hello)
    draining = threading.Thread(target=link.drain)
    draining.start()
    session = peer.await_session(PATH)
    session.await_heard(1)
    assert draining.is_alive()
    session.send(orders(1))
    assert draining.is_alive()
    session.send(Durable(number=1))
    draining.join(20.0)
    assert not draining.is_alive()


def test_a_new_incarnation_receives_messages_that_are_not_durable_again(peer: ControlPeer, link: WorkerControl) -> None:
    for build in (hello, report, report):
        link.say(build)
    session = peer.await_session(PATH)
    session.await_heard(3)
    for reply in (Durable(number=1), orders(1), orders(2), orders(1, incarnation=1)):
        session.send(reply)
    heard = session.await_heard(5)
    assert kinds(heard)[3:] == [("IterationReport", 2), ("IterationReport", 3)]


def test_last_messages_are_sent_before_the_connection_is_closed(peer: ControlPeer, link: WorkerControl) -> None:
    link.say(hello)
    session = peer.await_session(PATH)
    session.await_heard(1)
    for _ in range(50):
        link.say(report)
    link.close()
    session.await_over()
    assert [type(message) for message in session.heard] == [WorkerHello] + [IterationReport] * 50


def test_a_server_is_handed_the_newest_orders_now_and_newer_ones_later(
    peer: ControlPeer, server_link: ServerControl
) -> None:
    taken: list[ServerOrders] = []
    server_link.say(server_hello)
    session = peer.await_session("/ws/server/7/1")
    session.await_heard(1)
    session.send(server_orders(1))
    eventually(lambda: server_link._orders, what="the first orders")
    server_link.on_orders(taken.append)
    for sequence in (2, 1, 2, 3):
        session.send(server_orders(sequence))
    eventually(lambda: len(taken) == 3, what="three orders")
    assert [each.sequence for each in taken] == [1, 2, 3]


def test_a_server_that_cannot_follow_its_orders_ends(peer: ControlPeer, server_link: ServerControl) -> None:
    def refuse(_: ServerOrders) -> None:
        raise ValueError("no such block")

    server_link.on_orders(refuse)
    peer.await_session("/ws/server/7/1").send(server_orders(1))
    assert until_stopping(server_link) is None
    assert str(server_link.failure) == "no such block"


def test_an_unresponsive_peer_is_not_waited_for_at_the_end(peer: ControlPeer, link: WorkerControl) -> None:
    session: Session = peer.await_session(PATH)
    link.close()
    session.await_over()
    assert len(peer.sessions) == 1
