"""Laws of every registered data policy: a new one joins by being registered."""

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from controlplane.core.choices import Partitioned
from controlplane.policies import registry
from tests.policies.cluster import resolve

no_deadline = hypothesis_settings(deadline=None)
"""How long an example takes depends on what else the machine does."""

NAMES = registry.names("data")
PARTITIONED = [name for name in NAMES if isinstance(resolve("data", name), Partitioned)]
CHOICES = [(name, {}) for name in PARTITIONED]
CHOICES += [("exchange", {"method": "migrate"}), ("exchange", {"literal": True}), ("exchange", {"gap": 1, "splits": 1})]

every_partitioned = pytest.mark.parametrize(("name", "settings"), CHOICES, ids=lambda value: str(value) or None)
shares_of_all = st.dictionaries(st.integers(0, 20), st.integers(0, 300), min_size=1, max_size=6)


@pytest.mark.parametrize("name", NAMES)
@no_deadline
@given(shares=shares_of_all)
def test_offsets_are_ranges_without_gap_or_overlap(name, shares):
    offsets = resolve("data", name).offsets(shares)
    ranges = sorted((offsets[rank], offsets[rank] + shares[rank]) for rank in shares)
    assert ranges[0][0] == 0
    assert [stop for _, stop in ranges][:-1] == [start for start, _ in ranges][1:]
    assert ranges[-1][1] == sum(shares.values())


@st.composite
def jobs(draw):
    """A data set, and iterations: who processes how much, how fast, and who is there."""
    samples = draw(st.integers(12, 200))
    rosters = draw(st.lists(st.sets(st.integers(0, 19), min_size=1, max_size=12).map(sorted), min_size=1, max_size=5))
    iterations = []
    for roster in rosters:
        iterations.append((roster, True))
        iterations += [(roster, False)] * draw(st.integers(1, 8))
    seed = draw(st.randoms(use_true_random=False))
    return samples, [
        (roster, new, {rank: seed.randint(0, 80) for rank in roster}, {rank: seed.uniform(1, 9) for rank in roster})
        for roster, new in iterations
    ]


@every_partitioned
@no_deadline
@given(job=jobs())
def test_counts_are_what_was_processed_and_every_sample_has_one_owner(name, settings, job):
    samples, iterations = job
    policy = resolve("data", name, **settings)
    state, _ = policy.partition(samples, iterations[0][0])
    times: Counter[int] = Counter()
    for roster, new, processed, speeds in iterations:
        if new:
            before = owners(state)
            state, decision = policy.adopt(roster, state)
            assert_moved(before, state, decision)
            assert {split.owner for split in state.splits} == set(roster)
            assert policy.held(state) == Counter(owners(state))
        given = policy.pieces(processed, state)
        for rank, pieces in given.items():
            assert sum(piece.stop - piece.start for piece in pieces) == processed[rank]
            assert {piece.split for piece in pieces} <= set(state.owned(rank))
            times.update(position for piece in pieces for position in range(piece.start, piece.stop))
        state = policy.advance([piece for pieces in given.values() for piece in pieces], state)
        state = msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=policy.state_type)
        before = owners(state)
        state, decision = policy.rebalance(speeds, state)
        assert_moved(before, state, decision)
    edges = [edge for split in state.splits for edge in (split.start, split.stop)]
    assert (edges[0], edges[-1], edges[1:-1:2]) == (0, samples, edges[2::2])
    for split in state.splits:
        counted = [times[position] for position in range(split.start, split.stop)]
        assert [split.times(position) for position in range(split.start, split.stop)] == counted
        assert max(counted) - min(counted) <= 1


def owners(state):
    """Who may draw each sample."""
    return [split.owner for split in state.splits for _ in range(split.start, split.stop)]


def assert_moved(before, state, decision):
    """The moves are exactly the samples that have another owner now, and there is a reason."""
    assert decision.reason
    after = list(before)
    for move in decision.moves:
        assert {*before[move.start : move.stop]} == {move.giver} != {move.taker}
        assert state.splits[move.split].owner == move.taker
        after[move.start : move.stop] = [move.taker] * (move.stop - move.start)
    assert after == owners(state)


@every_partitioned
@no_deadline
@given(job=jobs())
def test_the_same_job_gives_the_same_splits(name, settings, job):
    samples, iterations = job
    ends = []
    for _ in range(2):
        policy = resolve("data", name, **settings)
        state, _ = policy.partition(samples, iterations[0][0][::-1])
        for roster, _, _, speeds in iterations:
            state, _ = policy.adopt(roster[::-1], state)
            state, _ = policy.rebalance(dict(reversed(speeds.items())), state)
        ends.append(state)
    assert ends[0] == ends[1]


def test_the_laws_know_every_data_policy():
    assert set(NAMES) == {"shared", "rotation", "exchange"}
    assert set(PARTITIONED) == {"rotation", "exchange"}
