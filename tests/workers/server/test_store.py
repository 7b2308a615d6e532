import threading

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from controlplane.protocol.orders import Block, Member, ServerOrders
from controlplane.protocol.spec import Optimizer
from workers.server.contribution import Contribution
from workers.server.store import Store
from workers.transport.errors import Refused, Stopped
from workers.transport.handshake import Peer
from workers.workloads.rules import GradientRule

A = Peer(0, "a")


def make_store() -> Store:
    return Store(lambda: np.arange(6, dtype=np.float32), lambda values, _: GradientRule(values, Optimizer(lr=1.0)))


def server_orders(*indices: int, sequence: int = 1, placement: int = 1, members: int = 1) -> ServerOrders:
    return ServerOrders(
        incarnation=0,
        generation=1,
        sequence=sequence,
        members=[Member(rank=rank, instance="ab"[rank], from_iteration=0) for rank in range(members)],
        placement_version=placement,
        blocks=[Block(index=index, start=2 * index, stop=2 * index + 2, server=0) for index in indices],
    )


def held(store: Store, index: int, placement: int = 1) -> list[float] | None:
    block = store.find(index, placement)
    if block is None:
        return None
    snapshot, _, _ = block.borrow(0)
    block.give_back(snapshot)
    return snapshot.values.tolist()


def close_iteration(store: Store, index: int) -> None:
    block = store.find(index, 1)
    assert block is not None
    total = np.zeros(2, dtype=np.float32).data.cast("B")
    block.contribute(Contribution(term=(0, 1), peer=A, iteration=block.version, samples=1, total=total))


def test_each_block_begins_with_its_slice_of_the_initial_parameters() -> None:
    store = make_store()
    store.take(server_orders(0, 2))
    assert (held(store, 0), held(store, 2), store.version) == ([0.0, 1.0], [4.0, 5.0], 0)


def test_the_rule_of_each_block_receives_its_offset_also_with_a_workers_copy() -> None:
    starts: list[int] = []

    def make_rule(values: torch.Tensor, start: int) -> GradientRule:
        starts.append(start)
        return GradientRule(values, Optimizer(lr=1.0))

    store = Store(lambda: np.arange(6, dtype=np.float32), make_rule)
    store.take(replace(server_orders(0, 1, 2), awaits=[1]))
    store.fill(1, 1, np.zeros(2, dtype=np.float32), version=3, steps=3)
    assert starts == [0, 4, 2]


def test_older_orders_change_nothing() -> None:
    store = make_store()
    store.take(server_orders(0, 1, sequence=5))
    store.take(server_orders(2, sequence=4))
    assert (held(store, 0), held(store, 1)) == ([0.0, 1.0], [2.0, 3.0])


def test_a_request_under_a_placement_to_come_waits_for_it() -> None:
    store = make_store()
    found: list[list[float] | None] = []
    thread = threading.Thread(target=lambda: found.append(held(store, 1, placement=2)))
    thread.start()
    store.take(server_orders(0, sequence=1))
    store.take(server_orders(1, sequence=2, placement=2))
    thread.join(10.0)
    assert found == [[2.0, 3.0]]


def test_a_request_under_an_older_placement_is_sent_elsewhere() -> None:
    store = make_store()
    store.take(server_orders(0, 1))
    store.take(server_orders(0, sequence=2, placement=2))
    assert (held(store, 0, placement=1), held(store, 1, placement=1)) == ([0.0, 1.0], None)


def test_a_request_for_a_block_that_was_never_here_is_refused() -> None:
    store = make_store()
    store.take(server_orders(0, 2))
    expected = r"block 1 is not on this server under placement 1; it holds \[0, 2\]"
    with pytest.raises(Refused, match=expected):
        store.find(1, 1)


def test_values_under_way_cannot_be_replaced_by_initial_ones() -> None:
    store = make_store()
    store.take(server_orders(0))
    close_iteration(store, 0)
    with pytest.raises(
        ValueError, match=r"give this server blocks \[1\], which would begin at version 0, while .* \[1\]"
    ):
        store.take(server_orders(0, 1, sequence=2, placement=2))
    assert store.find(0, 1) is not None


def test_the_version_is_that_of_the_block_furthest_behind() -> None:
    store = make_store()
    store.take(server_orders(0, 1))
    close_iteration(store, 0)
    assert store.version == 0
    close_iteration(store, 1)
    assert store.version == 1


def test_a_member_missing_on_several_blocks_is_reported_once() -> None:
    store = make_store()
    store.take(server_orders(0, 1, members=2))
    close_iteration(store, 0)
    close_iteration(store, 1)
    store.take(server_orders(0, 1, sequence=2, members=1))
    assert (store.version, store.take_missing(), store.take_missing()) == (1, [(0, 1)], [])


def test_the_end_lets_everyone_go() -> None:
    store = make_store()
    ends: list[type[Exception]] = []

    def ask() -> None:
        try:
            store.find(0, 1)
        except Stopped as end:
            ends.append(type(end))

    thread = threading.Thread(target=ask)
    thread.start()
    store.stop()
    thread.join(10.0)
    assert ends == [Stopped]
