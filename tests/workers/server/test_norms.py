"""How servers agree on the norm of a gradient: what is said twice, late, by strangers, or about blocks that moved."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

from controlplane.protocol.orders import ServerAddress
from controlplane.protocol.spec import Optimizer
from controlplane.protocol.training import Clip
from tests.support.waiting import eventually
from workers.server.block import Block, Gone
from workers.server.contribution import Contribution
from workers.server.norms import KEPT, KEPT_AFTER_LEAVING, MOST_UNNAMED, Norms, Part
from workers.server.quorum import Roster, Verdict
from workers.transport.errors import BadHeader, ConnectionClosed, Refused
from workers.transport.handshake import Peer
from workers.workloads.layout import Layout
from workers.workloads.rules import GradientRule

A, B = Peer(0, "a"), Peer(1, "b")
ROSTER = Roster(incarnation=0, generation=1, members={A: 0, B: 0}, placement=1)
LAYOUT = Layout.of({"all": (4,)})
OTHER = ServerAddress(index=1, instance="s1", host="127.0.0.1", port=1, key=b"k")


class Wire:
    """The connections to other servers, in memory: what each was told."""

    def __init__(self) -> None:
        self.told: dict[str, list[Part]] = {}
        self.is_up = True

    def connect(self, address: ServerAddress) -> Any:
        if not self.is_up:
            raise ConnectionClosed("away")
        wire = self

        class Connection:
            def send_norms(self, payload: bytes) -> None:
                if not wire.is_up:
                    raise ConnectionClosed("away")
                wire.told.setdefault(address.instance, []).extend(msgspec.msgpack.decode(payload, type=list[Part]))

            def abort(self) -> None: ...

            def close(self) -> None: ...

        return Connection()


class Here:
    """One server with the first half of the parameters; the other half is on another."""

    def __init__(self) -> None:
        self.wire, self.failures = Wire(), list[Exception]()
        self.blocks: list[Block] = []
        self.norms = Norms([4], self.wire.connect, self.settle, self.failures.append)
        self.block = self.begin()

    def begin(self, **begin: Any) -> Block:
        optimizer = Optimizer(lr=1.0, clip=Clip(norm=1.0))
        values = np.zeros(2, dtype=np.float32)
        block = Block(
            values,
            lambda tensor, start: GradientRule(tensor, optimizer, layout=LAYOUT, start=start),
            lambda *_: None,
            lambda *_: None,
            norms=self.norms,
            **begin,
        )
        self.blocks.append(block)
        return block

    def settle(self) -> None:
        for block in self.blocks:
            block.settle()

    def push(self, peer: Peer, value: float, iteration: int = 0) -> Verdict:
        memory = np.full(2, value, dtype=np.float32).data.cast("B")
        term = self.block._roster.term
        return self.block.contribute(Contribution(term=term, peer=peer, iteration=iteration, samples=1, total=memory))[
            0
        ]

    def receive(self, squared: float, iteration: int = 0, instance: str = "s1", start: int = 2) -> None:
        self.norms.receive(instance, said(squared, iteration, start))

    def value(self) -> float:
        return float(self.block.copy()["values"][0])


def said(squared: float, iteration: int = 0, start: int = 2) -> bytes:
    return msgspec.msgpack.encode([Part(iteration=iteration, start=start, size=2, squared=squared)])


@pytest.fixture
def here() -> Iterator[Here]:
    here = Here()
    here.norms.follow([OTHER])
    here.block.appoint(ROSTER)
    yield here
    here.norms.stop()
    assert here.failures == []


def once(condition: Callable[[], Any]) -> None:
    eventually(condition, what="the step", every=0.002)


def complete(here: Here, iteration: int = 0) -> None:
    """A mean gradient of 2 in each element here: a squared norm of 8."""
    assert here.push(A, 1.0, iteration) is Verdict.COUNT
    assert here.push(B, 3.0, iteration) is Verdict.COUNT


def test_a_step_waits_for_the_parts_of_others_and_clips_by_the_whole(here: Here) -> None:
    complete(here)
    once(lambda: [part.squared for part in here.wire.told.get("s1", [])] == [pytest.approx(8.0)])
    assert (here.block.version, here.value()) == (0, 0.0)
    here.receive(8.0)
    once(lambda: here.block.version == 1)
    assert here.value() == pytest.approx(-2.0 / 4.0, rel=1e-5)


def test_the_other_may_be_first_and_report_it_twice(here: Here) -> None:
    here.receive(8.0)
    here.receive(8.0)
    complete(here)
    once(lambda: here.block.version == 1)
    here.receive(8.0)
    complete(here, 1)
    assert here.push(A, 1.0, 1) is Verdict.REPEATED
    here.receive(8.0, 1)
    once(lambda: here.block.version == 2)
    assert here.value() == pytest.approx(-1.0, rel=1e-5)


def test_what_an_unknown_server_sends_is_accepted_once_orders_name_it(here: Here) -> None:
    complete(here)
    here.receive(8.0, instance="s2")
    once(lambda: here.wire.told.get("s1"))
    assert here.block.version == 0
    here.norms.follow([OTHER, ServerAddress(index=2, instance="s2", host="h", port=1, key=b"k")])
    once(lambda: here.block.version == 1)


def test_what_was_sent_by_a_member_that_has_left_stays_valid(here: Here) -> None:
    here.receive(8.0)
    here.norms.follow([])
    complete(here)
    once(lambda: here.block.version == 1)


def test_no_step_is_made_before_the_others_know_what_was_sent(here: Here) -> None:
    here.wire.is_up = False
    complete(here)
    here.receive(8.0)
    here.settle()
    assert here.block.version == 0
    here.wire.is_up = True
    once(lambda: here.block.version == 1)


def test_a_departure_completes_an_iteration_and_later_updates_are_stale(here: Here) -> None:
    here.push(A, 2.0)
    here.block.appoint(Roster(incarnation=0, generation=2, members={A: 0}))
    once(lambda: here.wire.told.get("s1"))
    here.block.appoint(Roster(incarnation=0, generation=3, members={A: 0, B: 0}))
    answers: list[Verdict] = []
    late = threading.Thread(target=lambda: answers.append(here.push(B, 9.0)))
    late.start()
    here.receive(8.0)
    late.join(5.0)
    assert answers == [Verdict.STALE]
    assert here.value() == pytest.approx(-0.5, rel=1e-5)


def test_a_block_that_moves_reports_again_what_others_may_not_know(here: Here) -> None:
    complete(here)
    here.block.freeze(0)
    state = here.block.await_frozen()
    assert state is not None
    here.receive(8.0)
    here.settle()
    assert here.block.version == 0, "frozen: it counts elsewhere"
    there = Here()
    there.norms.follow([OTHER])
    there.block.resume(state)
    there.block.appoint(ROSTER)
    once(lambda: [part.iteration for part in there.wire.told.get("s1", [])] == [0])
    there.receive(8.0)
    once(lambda: there.block.version == 1)
    there.norms.stop()
    here.block.thaw()
    once(lambda: here.block.version == 1)


def test_a_pull_under_an_older_placement_is_let_go_while_a_norm_is_awaited(here: Here) -> None:
    complete(here)
    left: list[bool] = []

    def pull() -> None:
        try:
            here.block.borrow(1, placement=1)
        except Gone:
            left.append(True)

    pulling = threading.Thread(target=pull)
    pulling.start()
    here.block.appoint(Roster(incarnation=0, generation=1, members={A: 0, B: 0}, placement=2))
    pulling.join(5.0)
    assert left == [True]


def test_older_iterations_are_dropped_and_a_new_client_receives_the_rest(here: Here) -> None:
    for iteration in range(KEPT + 3):
        here.receive(8.0, iteration)
        complete(here, iteration)
        once(lambda version=iteration + 1: here.block.version == version)
    assert len(here.norms._own) == len(here.norms._published) == KEPT
    here.norms.follow([ServerAddress(index=2, instance="s2", host="h", port=1, key=b"k")])
    once(lambda: [part.iteration for part in here.wire.told.get("s2", [])] == list(range(3, KEPT + 3)))


def test_what_is_no_norm_is_refused(here: Here) -> None:
    with pytest.raises(BadHeader, match="no norms of blocks"):
        here.norms.receive("s1", b"x")


@pytest.mark.parametrize(("start", "size"), [(2, 3), (4, 1), (0, 0)])
def test_a_norm_of_elements_that_do_not_exist_is_refused(here: Here, start: int, size: int) -> None:
    with pytest.raises(BadHeader, match="elements from"):
        here.norms.receive("s1", msgspec.msgpack.encode([Part(iteration=0, start=start, size=size, squared=1.0)]))


def overlapping(count: int, iteration: int = 0) -> bytes:
    return msgspec.msgpack.encode([Part(iteration=iteration, start=at, size=1, squared=1.0) for at in range(count)])


def kept(norms: Norms) -> int:
    return sum(map(len, norms._theirs.values()))


def test_a_server_keeps_no_more_of_another_than_the_job_has_blocks(large: Norms) -> None:
    for iteration in range(100):
        large.receive("s1", overlapping(large._most_blocks, iteration))
    assert kept(large) == KEPT * large._most_blocks
    with pytest.raises(BadHeader, match="the job has at most"):
        large.receive("s1", overlapping(large._most_blocks + 1, 100))
    assert kept(large) == KEPT * large._most_blocks


def test_messages_of_unnamed_servers_are_queued_up_to_a_limit_until_orders_name_them(large: Norms) -> None:
    room = MOST_UNNAMED // large._most_blocks
    for told in range(room):
        large.receive(f"x{told}", overlapping(large._most_blocks))
    with pytest.raises(Refused, match="orders do not name"):
        large.receive("s1", overlapping(large._most_blocks))
    assert kept(large) == room * large._most_blocks
    large.follow([OTHER])
    large.receive("s1", overlapping(large._most_blocks))


def test_servers_that_left_long_ago_are_forgotten(large: Norms) -> None:
    for life in range(3 * KEPT_AFTER_LEAVING):
        large.follow([ServerAddress(index=1, instance=f"s1-{life}", host="h", port=1, key=b"k")])
        large.receive(f"s1-{life}", overlapping(2))
    assert len(large._named) == len(large._theirs) == KEPT_AFTER_LEAVING + 1
    large.follow([])
    assert len(large._named) == len(large._theirs) == KEPT_AFTER_LEAVING


@pytest.fixture
def large() -> Iterator[Norms]:
    """Of a model of 4 million elements, and nothing said here."""
    wire = Wire()
    wire.is_up = False
    norms = Norms([4_000_000], wire.connect, lambda: None, lambda error: None)
    yield norms
    norms.stop()
