"""Laws of every registered placement: a new one joins by being registered."""

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from controlplane.core.choices import (
    PlacementDecision,
    PlacementRequest,
    Rebalancing,
    Scaling,
    TensorPlacement,
    Transfer,
)
from controlplane.policies import registry
from controlplane.protocol.orders import Block
from tests.policies.cluster import resolve
from tests.policies.network import MIB, Server, loads

no_deadline = hypothesis_settings(deadline=None)
"""How long an example takes depends on what else the machine does."""

NAMES = registry.names("placement")
FOLLOWING = [name for name in NAMES if isinstance(resolve("placement", name), Rebalancing)]
CHOICES = [(name, {}) for name in NAMES] + [(name, {"literal": True}) for name in ("round-robin", "psld")]

every_placement = pytest.mark.parametrize(("name", "settings"), CHOICES, ids=lambda value: str(value) or None)
every_following = pytest.mark.parametrize(
    ("name", "settings"), [choice for choice in CHOICES if choice[0] in FOLLOWING], ids=lambda value: str(value) or None
)

tensors = st.lists(st.integers(0, 8) | st.integers(0, 3_000_000), min_size=1, max_size=12).filter(any)
"""Also tensors without elements, and of fewer elements than there are servers."""
indices = st.sets(st.integers(0, 20), min_size=1, max_size=6).map(sorted)


def slices_of(sizes: list[int]) -> list[tuple[int, int]]:
    slices, start = [], 0
    for size in filter(None, sizes):
        slices.append((start, start + size))
        start += size
    return slices


def assert_covers(blocks: list[Block], total: int, servers: list[int]) -> None:
    """Every element has exactly one server, and blocks are numbered in order."""
    assert [block.index for block in blocks] == list(range(len(blocks)))
    edges = [edge for block in blocks for edge in (block.start, block.stop)]
    assert edges[0] == 0
    assert edges[-1] == total
    assert edges[1:-1:2] == edges[2::2]
    assert all(block.start < block.stop for block in blocks)
    assert {block.server for block in blocks} <= set(servers)


@every_placement
@no_deadline
@given(sizes=tensors, servers=indices)
def test_every_parameter_has_exactly_one_server(name, settings, sizes, servers):
    blocks, reason = resolve("placement", name, **settings).place(slices_of(sizes), servers)
    assert_covers(blocks, sum(sizes), servers)
    assert reason


@every_placement
@no_deadline
@given(sizes=tensors, servers=indices, block_bytes=st.sampled_from([2**16, 2**20, 2**22, 2**24]))
def test_blocks_cut_from_tensors_are_within_their_size_and_span_no_two_tensors(
    name, settings, sizes, servers, block_bytes
):
    policy = resolve("placement", name, block_bytes=block_bytes, **settings)
    assert isinstance(policy, TensorPlacement)
    blocks, _ = policy.place_tensors(sizes, servers)
    assert_covers(blocks, sum(sizes), servers)
    assert max(block.stop - block.start for block in blocks) * 4 <= block_bytes
    starts = {start for start, _ in slices_of(sizes)}
    assert starts <= {block.start for block in blocks}


@every_placement
@no_deadline
@given(sizes=tensors, servers=indices)
def test_the_order_in_which_servers_are_named_does_not_matter(name, settings, sizes, servers):
    policy = resolve("placement", name, **settings)
    assert policy.place(slices_of(sizes), servers[::-1]) == policy.place(slices_of(sizes), servers)


@every_placement
def test_no_server_is_an_error(name, settings):
    with pytest.raises(ValueError, match="cannot be placed: found no server, expected at least one"):
        resolve("placement", name, **settings).place([(0, 8)], [])


def story(policy, *, seed: int, through_snapshots: bool = False, shuffled: bool = False) -> list[PlacementDecision]:
    """40 iterations in which servers change speed, come and go, and some measurements are nonsense."""
    chance = random.Random(seed)
    servers = {index: Server(per_mib_s=chance.choice([0.01, 0.02, 0.5])) for index in range(chance.randint(1, 6))}
    sizes = [chance.randint(1, 2_000_000) for _ in range(chance.randint(1, 30))]
    blocks, _ = policy.place(slices_of(sizes), list(servers))
    total, initial = sum(sizes), len(servers)
    state, decisions = policy.begin(), []
    for iteration in range(40):
        if chance.random() < 0.1:
            servers[max(servers) + 1] = Server()
        if chance.random() < 0.1:
            servers[chance.choice(sorted(servers))] = Server(per_mib_s=chance.choice([0.01, 0.5]))
        if chance.random() < 0.05 and len(servers) > 1:
            del servers[chance.choice(sorted(servers))]
        transfers = [
            Transfer(
                rank=rank,
                server=block.server,
                iteration=iteration,
                bytes=(block.stop - block.start) * 4,
                seconds=chance.choice([1.0, 1.0, 1.0, float("nan"), -1.0, 0.0])
                * servers[block.server].takes_s((block.stop - block.start) * 4),
            )
            for rank in range(2)
            for block in blocks[:8]
            if block.server in servers
        ]
        if shuffled:
            random.Random(iteration).shuffle(transfers)
        request = PlacementRequest(
            iteration=iteration,
            blocks=blocks,
            servers=sorted(servers),
            initial=initial,
            spare=chance.randint(0, 2),
            seed=seed + iteration,
        )
        if through_snapshots:
            state = msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=policy.state_type)
        state, decision = policy.decide(request, transfers, state)
        decisions.append(decision)
        assert decision.reason
        assert set(decision.probes) | set(decision.retire) <= set(servers)
        assert decision.add <= (request.spare if isinstance(policy, Scaling) else 0)
        if decision.blocks is not None:
            assert_covers(decision.blocks, total, list(servers))
            blocks = decision.blocks
        held = {block.server for block in blocks}
        assert not held & set(decision.retire)
    return decisions


@every_following
@no_deadline
@given(seed=st.integers(0, 2**32))
def test_decisions_keep_every_block_on_one_live_server_and_do_not_depend_on_snapshots_or_order(name, settings, seed):
    policy = resolve("placement", name, **settings)
    decisions = story(policy, seed=seed)
    assert story(policy, seed=seed, through_snapshots=True) == decisions
    assert story(policy, seed=seed, shuffled=True) == decisions


@every_following
@no_deadline
@given(size=st.integers(1, 100), seed=st.integers(0, 2**32))
def test_a_model_of_one_block_stays_whole(name, settings, size, seed):
    policy = resolve("placement", name, **settings)
    blocks, _ = policy.place([(0, size)], [0, 1])
    assert loads(blocks, [0, 1]) == {0: 4 * size, 1: 0}
    transfer = Transfer(rank=0, server=0, iteration=20, bytes=4 * size, seconds=0.1)
    request = PlacementRequest(iteration=20, blocks=blocks, servers=[0, 1], initial=2, seed=seed)
    _, decision = policy.decide(request, [transfer], policy.begin())
    assert len(decision.blocks or blocks) == 1


def test_the_laws_know_every_placement():
    assert set(NAMES) == {"round-robin", "mxnet", "proportional", "psld", "psld-lpt"}
    assert set(FOLLOWING) == {"proportional", "psld", "psld-lpt"}
    assert MIB == 2**20
