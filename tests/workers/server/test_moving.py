"""Blocks on their way from one server to another: nothing is lost, nothing counts twice, whoever dies when."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from controlplane.protocol import keys
from controlplane.protocol.orders import Block as Slice
from controlplane.protocol.orders import Member, ServerAddress, ServerOrders
from controlplane.protocol.spec import Optimizer
from tests.support.waiting import eventually
from tests.workers.identities import calling, identity
from workers.server.block import Block
from workers.server.block_transfer import pack, read_manifest, unpack
from workers.server.contribution import Contribution
from workers.server.handover import Handed, Handover
from workers.server.listener import Listener
from workers.server.meter import Meter
from workers.server.quorum import Roster, Verdict
from workers.server.store import Store
from workers.transport.client import Outcome, ServerConnection
from workers.transport.encryption import Encryption
from workers.transport.errors import Refused, Stopped
from workers.transport.frames import Header, Op
from workers.transport.handshake import Peer
from workers.workloads.rules import GradientRule

A, B = Peer(0, "a"), Peer(1, "b")
SIZE = 500
BLOCKS = 4
MOMENTUM = Optimizer(lr=0.5, momentum=0.9)


def contribution(peer: Peer, iteration: int, value: float, *, generation: int = 1, size: int = SIZE) -> Contribution:
    total = np.full(size, value, dtype=np.float32).data.cast("B")
    return Contribution(term=(0, generation), peer=peer, iteration=iteration, samples=2, total=total)


def new_block(roster: Roster, optimizer: Optimizer = MOMENTUM) -> Block:
    block = Block(np.zeros(SIZE, dtype=np.float32), lambda v, _: GradientRule(v, optimizer), *2 * [lambda *_: None])
    block.appoint(roster)
    return block


def value_of(block: Block) -> float:
    snapshot, _, _ = block.borrow(0)
    block.give_back(snapshot)
    return float(snapshot.values[-1])


def carried(block: Block, roster: Roster) -> Block:
    """What the block is after its way over a wire."""
    block.freeze(0)
    state = block.await_frozen()
    assert state is not None
    manifest, arrays = pack(state)
    copies = [memoryview(bytearray(array)) for array in arrays]
    twin = new_block(Roster(incarnation=-1, generation=-1, members={}))
    arrived = unpack(read_manifest(manifest), copies)
    np.copyto(twin._values.tensor.numpy(), arrived.values.numpy())
    twin.resume(arrived)
    twin.appoint(roster)
    block.thaw()
    return twin


LOCKSTEP = Roster(incarnation=0, generation=1, members={A: 0, B: 0})
MODES = {
    "lockstep": LOCKSTEP,
    "on arrival": Roster(incarnation=0, generation=1, members={A: 0, B: 0}, apply="arrival", scale=0.5),
    "held until passed": Roster(incarnation=0, generation=1, members={A: 0, B: 0}, apply="release", scale=0.5),
    "named": Roster(incarnation=0, generation=1, members={A: 0, B: 0}, named_from=0, quorums={0: frozenset({0})}),
}


@pytest.mark.parametrize("mode", sorted(MODES))
@pytest.mark.parametrize("optimizer", [MOMENTUM, Optimizer(name="adam", lr=0.1)], ids=["momentum", "adam"])
@pytest.mark.parametrize("pushed", range(6))
def test_a_block_continues_elsewhere_as_if_it_had_stayed(mode: str, optimizer: Optimizer, pushed: int) -> None:
    roster = MODES[mode]
    pushes = [(peer, iteration, 1.0 + iteration + peer.rank) for iteration in range(3) for peer in (A, B)]
    stays = new_block(roster, optimizer)
    for peer, iteration, value in pushes[:pushed]:
        stays.contribute(contribution(peer, iteration, value))
    moves = carried(stays, roster) if optimizer is MOMENTUM else None
    if moves is None:
        stays.freeze(0)
        state = stays.await_frozen()
        assert state is not None
        manifest, arrays = pack(state)
        arrived = unpack(read_manifest(manifest), [memoryview(bytearray(array)) for array in arrays])
        moves = Block(arrived.values.numpy(), lambda v, _: GradientRule(v, optimizer), *2 * [lambda *_: None])
        moves.resume(arrived)
        moves.appoint(roster)
        stays.thaw()
    for peer, iteration, value in [*pushes, *pushes[:2]]:
        given = [block.contribute(contribution(peer, iteration, value))[0] for block in (stays, moves)]
        assert given[0] is given[1]
    assert (moves.version, moves.steps, value_of(moves)) == (stays.version, stays.steps, value_of(stays))


def test_a_frozen_block_counts_nothing_and_can_still_be_read() -> None:
    block = new_block(LOCKSTEP)
    block.freeze(1)
    assert block.contribute(contribution(A, 0, 1.0))[0] is Verdict.COUNT
    assert block.contribute(contribution(B, 0, 1.0))[0] is Verdict.COUNT
    assert block.await_frozen() is not None
    waiting = [threading.Thread(target=block.contribute, args=(contribution(A, 1, 1.0),), daemon=True)]
    waiting[0].start()
    assert (block.version, value_of(block)) == (1, -0.25)
    block.appoint(Roster(incarnation=0, generation=2, members={A: 0}))
    assert block.version == 1, "not even for a departure"
    block.thaw()
    waiting[0].join(5.0)
    assert not waiting[0].is_alive()


@dataclass
class Server:
    """One server as its process has it; ``dies_at`` is the point of a hand-over at which it ends, unsaid."""

    index: int
    dies_at: str = ""
    encrypts: bool = False
    handed: list[Handed] = field(default_factory=list)
    reached: list[str] = field(default_factory=list)
    alive: bool = True
    starts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.key = f"server {self.index}".encode()
        me = Peer(self.index, f"s{self.index}", "server")
        mine = identity("server", self.index, f"s{self.index}")
        encryption = Encryption(mine, encrypts=self.encrypts)
        connect = partial(ServerConnection, peer=me, checked=True, encryption=encryption)
        hand_over = partial(Handover, connect=connect, say=self.handed.append, reach=self.reach)
        self.store = Store(
            lambda: np.zeros(SIZE * BLOCKS, dtype=np.float32),
            self.make_rule,
            hand_over=hand_over,
        )
        self.failures: list[Exception] = []
        self.listener = Listener(
            "127.0.0.1", self.store, Meter(), self.key_of, self.failures.append, encryption=encryption
        )

    def make_rule(self, values: torch.Tensor, start: int) -> GradientRule:
        self.starts.append(start)
        return GradientRule(values, MOMENTUM)

    def key_of(self, peer: Peer) -> bytes:
        derive = keys.data_key if peer.role == "worker" else keys.peer_key
        return derive(self.key, peer.rank, peer.instance)

    def reach(self, point: str) -> None:
        self.reached.append(point)
        if point == self.dies_at:
            self.die()
            raise Stopped(f"died at {point}")

    def die(self) -> None:
        if self.alive:
            self.alive = False
            self.store.stop()
            self.listener.close()

    def address(self, reader: Peer) -> ServerAddress:
        derive = keys.data_key if reader.role == "worker" else keys.peer_key
        key = derive(self.key, reader.rank, reader.instance)
        return ServerAddress(
            index=self.index, instance=f"s{self.index}", host="127.0.0.1", port=self.listener.port, key=key
        )


class Pair:
    """Two servers; blocks 0 and 1 are on the first, 2 and 3 on the second. Block 1 is to move."""

    def __init__(self, *, encrypts: bool = False) -> None:
        self.servers = [Server(0, encrypts=encrypts), Server(1, encrypts=encrypts)]
        self.sequence = 0
        self.placement = 1
        self.holders = [0, 0, 1, 1]
        self.tell()

    def tell(self, *, next_placement: int = 0, sends: dict[int, int] | None = None, freeze_at: int = 0) -> None:
        self.sequence += 1
        for server in self.servers:
            self.tell_one(server, next_placement=next_placement, sends=sends, freeze_at=freeze_at)

    def tell_one(
        self, server: Server, *, next_placement: int = 0, sends: dict[int, int] | None = None, freeze_at: int = 0
    ) -> None:
        if not server.alive:
            return
        own = {block: to for block, to in (sends or {}).items() if self.holders[block] == server.index}
        me = Peer(server.index, f"s{server.index}", "server")
        server.store.take(
            ServerOrders(
                incarnation=0,
                generation=1,
                sequence=self.sequence,
                members=[Member(rank=0, instance="a", from_iteration=0)],
                placement_version=self.placement,
                blocks=[
                    Slice(index=at, start=at * SIZE, stop=at * SIZE + SIZE, server=holder)
                    for at, holder in enumerate(self.holders)
                    if holder == server.index
                ],
                next_placement=next_placement,
                sends=own,
                receivers=[self.servers[to].address(me) for to in sorted(set(own.values()))],
                freeze_at=freeze_at,
            )
        )

    def order_move(self, *, freeze_at: int = 0) -> None:
        self.tell(next_placement=2, sends={1: 1}, freeze_at=freeze_at)

    def commit(self) -> None:
        self.placement, self.holders = 2, [0, 1, 1, 1]
        self.tell()

    def push(self, server: int, blocks: list[int], iteration: int, placement: int = 1) -> tuple[set[int], Outcome]:
        connection = ServerConnection(self.servers[server].address(A), A, encryption=calling(A.rank, A.instance))
        pending = {b: np.full(SIZE, 2.0, dtype=np.float32).data.cast("B") for b in blocks}
        stamp = Header(op=Op.PUSH, generation=1, placement=placement, iteration=iteration, samples=1)
        try:
            outcome = connection.push(pending, stamp)
        finally:
            connection.close()
        return set(pending), outcome

    def value(self, server: int, block: int) -> float:
        found = self.servers[server].store.find(block, 0)
        assert found is not None
        return value_of(found)


@pytest.fixture(params=[False, True], ids=["plain", "encrypted"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    pair = Pair(encrypts=request.param)
    yield pair
    for server in pair.servers:
        server.die()
        assert server.failures == []


def once(condition: Callable[[], Any]) -> None:
    eventually(condition, what="what was to happen", every=0.002)


def test_a_block_moves_between_two_versions_and_later_pushes_find_it(pair: Pair) -> None:
    pair.push(0, [0, 1], 0)
    pair.order_move(freeze_at=2)
    assert pair.push(0, [0, 1], 1) == (set(), Outcome())
    once(lambda: pair.servers[0].handed)
    (handed,) = pair.servers[0].handed
    assert (handed.placement, handed.blocks, handed.failure) == (2, [1], "")
    assert handed.size > 2 * SIZE * 4, "its momentum travels as well"
    assert pair.servers[1].starts == [2 * SIZE, 3 * SIZE, 1 * SIZE], "its rule is told where the block begins"
    pair.commit()
    assert pair.push(0, [1], 2) == ({1}, Outcome(moved=True))
    assert pair.push(1, [1], 2, placement=2)[0] == set()
    pair.push(0, [0], 2, placement=2)
    assert pair.value(1, 1) == pair.value(0, 0) != 0.0


def test_a_push_to_a_frozen_block_waits_and_is_answered_that_it_has_moved(pair: Pair) -> None:
    pair.order_move()
    once(lambda: pair.servers[0].handed)
    answers: list[tuple[set[int], Outcome]] = []
    pushing = threading.Thread(target=lambda: answers.append(pair.push(0, [0, 1], 0)))
    pushing.start()
    once(lambda: pair.servers[0].store.find(0, 1).version == 1)  # type: ignore[union-attr]
    assert answers == []
    pair.commit()
    pushing.join(5.0)
    ((left, outcome),) = answers
    assert (left, outcome.moved) == ({1}, True)


def test_a_change_that_is_given_up_leaves_the_block_where_it_is(pair: Pair) -> None:
    pair.order_move()
    once(lambda: pair.servers[0].handed)
    pushing = threading.Thread(target=pair.push, args=(0, [1], 0))
    pushing.start()
    pair.tell()
    pushing.join(5.0)
    assert pair.value(0, 1) == -1.0
    assert pair.servers[1].store._staged == {}


def test_a_message_for_an_unexpected_placement_is_refused(pair: Pair) -> None:
    pair.tell(next_placement=3)
    me = Peer(0, "s0", "server")
    block = new_block(LOCKSTEP)
    block.freeze(0)
    state = block.await_frozen()
    assert state is not None
    connection = ServerConnection(
        pair.servers[1].address(me), me, checked=True, encryption=calling(0, "s0", role="server")
    )
    with pytest.raises(Refused, match="block 1 comes for placement 2, which is not expected here"):
        connection.give(1, 2, *pack(state))
    connection.close()


def test_a_worker_cannot_hand_blocks_over(pair: Pair) -> None:
    connection = ServerConnection(pair.servers[1].address(A), A, encryption=calling(A.rank, A.instance))
    with pytest.raises(Refused, match="GIVE with 1 bytes is not a request; PUSH, PULL, PROBE and FILL are"):
        connection.give(1, 2, b"x", [])
    connection.close()


def test_an_unavailable_receiver_is_reported_once(pair: Pair) -> None:
    pair.servers[1].die()
    pair.order_move()
    once(lambda: pair.servers[0].handed)
    (handed,) = pair.servers[0].handed
    assert handed.blocks == []
    assert handed.failure.startswith("to server 1: server 1 at 127.0.0.1:")
    pair.tell()
    assert pair.push(0, [1], 0) == (set(), Outcome())


@pytest.mark.parametrize("point", ["ordered", "frozen", "acknowledged", "said"])
def test_a_source_that_dies_before_the_commit_leaves_no_second_copy_in_use(pair: Pair, point: str) -> None:
    source, receiver = pair.servers
    source.dies_at = point
    try:
        pair.order_move()
    except Stopped:
        pair.tell_one(receiver, next_placement=2)
    once(lambda: not source.alive)
    assert len(source.handed) == (point == "said"), "only what was acknowledged is told"
    pair.tell()
    assert receiver.store._staged == {}
    assert sorted(receiver.store._blocks) == [2, 3]


@pytest.mark.parametrize("point", ["frozen", "acknowledged"])
def test_a_receiver_that_dies_before_the_commit_costs_nothing(pair: Pair, point: str) -> None:
    source, receiver = pair.servers
    pair.push(0, [1], 0)
    before = pair.value(0, 1)
    source.reach = lambda at: receiver.die() if at == point else None  # type: ignore[method-assign]
    source.store._hand_over.keywords["reach"] = source.reach  # type: ignore[union-attr]
    pair.order_move()
    once(lambda: source.handed)
    assert bool(source.handed[0].failure) == (point == "frozen")
    pair.tell()
    assert pair.value(0, 1) == before
    assert pair.push(0, [1], 1) == (set(), Outcome())


def test_a_receiver_that_dies_after_the_commit_had_the_only_copy(pair: Pair) -> None:
    pair.order_move()
    once(lambda: pair.servers[0].handed)
    pair.servers[1].die()
    pair.commit()
    assert pair.push(0, [1], 0) == ({1}, Outcome(moved=True))
    assert sorted(pair.servers[0].store._blocks) == [0]
