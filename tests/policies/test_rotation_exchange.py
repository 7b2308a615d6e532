"""Splits: A-BSP section 3.3 and LB-BSP section 7."""

from collections.abc import Mapping

import pytest

from controlplane.core.choices import SplitMove
from controlplane.policies.data.splits import Split, SplitsState
from controlplane.protocol.orders import Piece
from tests.policies.cluster import resolve


def advance(policy, processed: Mapping[int, int], state: SplitsState) -> SplitsState:
    """Every worker processed so many samples from where it stopped."""
    return policy.advance([piece for pieces in policy.pieces(processed, state).values() for piece in pieces], state)


def train(policy, shares: Mapping[int, int], *, samples: int, iterations: int):
    """Shares in proportion to speed, as LB-BSP or a cut iteration would have them. States and moves by iteration."""
    state, _ = policy.partition(samples, sorted(shares))
    states, moves = [state], []
    for _ in range(iterations):
        state = advance(policy, shares, state)
        state, decision = policy.rebalance({rank: float(share) for rank, share in shares.items()}, state)
        states.append(state)
        moves.append(decision.moves)
    return states, moves


def test_the_example_of_task_level_prioritisation() -> None:
    """A-BSP 3.3.1: the last processed point is i; the next iteration goes from i + 1 to n, and then from 1 to i."""
    policy = resolve("data", "rotation", splits=1)
    state, reason = policy.partition(10, [0])
    assert reason == "10 samples in 1 splits, 1 for each worker"
    assert policy.pieces({0: 10}, state) == {0: [Piece(split=0, start=0, stop=10)]}
    state = advance(policy, {0: 6}, state)
    assert policy.pieces({0: 10}, state) == {0: [Piece(split=0, start=6, stop=10), Piece(split=0, start=0, stop=6)]}
    state = advance(policy, {0: 7}, state)
    assert [state.splits[0].times(position) for position in range(10)] == [2, 2, 2, 1, 1, 1, 1, 1, 1, 1]
    assert state.splits[0].count == 1


def test_splits_of_one_worker_take_turns_by_passes() -> None:
    policy = resolve("data", "rotation", splits=2)
    state, _ = policy.partition(8, [0])
    assert policy.pieces({0: 6}, state)[0] == [Piece(split=0, start=0, stop=4), Piece(split=1, start=4, stop=6)]
    state = advance(policy, {0: 6}, state)
    assert policy.pieces({0: 4}, state)[0] == [Piece(split=1, start=6, stop=8), Piece(split=0, start=0, stop=2)]


def test_workers_draw_from_their_own_splits_only() -> None:
    policy = resolve("data", "rotation")
    state, _ = policy.partition(160, [3, 5])
    pieces = policy.pieces({3: 30, 5: 7}, state)
    assert [(piece.start, piece.stop) for piece in pieces[3]] == [(0, 20), (20, 30)]
    assert [(piece.start, piece.stop) for piece in pieces[5]] == [(80, 87)]


def test_a_share_above_all_of_a_workers_data_goes_round_again() -> None:
    policy = resolve("data", "rotation", splits=1)
    state, _ = policy.partition(4, [0])
    assert [(piece.start, piece.stop) for piece in policy.pieces({0: 10}, state)[0]] == [(0, 4), (0, 4), (0, 2)]


def test_few_samples_are_cut_into_fewer_splits_each() -> None:
    state, reason = resolve("data", "rotation", splits=4).partition(7, [0, 1])
    assert (len(state.splits), reason) == (6, "7 samples in 6 splits, 3 for each worker")


def test_fewer_samples_than_workers_are_refused() -> None:
    with pytest.raises(ValueError, match="2 samples cannot be divided among 3 workers: each needs at least one"):
        resolve("data", "rotation").partition(2, [0, 1, 2])


def test_split_is_divided_for_a_worker_that_would_have_none() -> None:
    policy = resolve("data", "rotation", splits=1)
    state, _ = policy.partition(20, [0, 1])
    state = advance(policy, {0: 13, 1: 3}, state)
    state, decision = policy.adopt([0, 1, 2], state)
    assert [(split.start, split.stop, split.owner, split.processed) for split in state.splits] == [
        (0, 5, 0, 8),
        (5, 10, 2, 5),
        (10, 20, 1, 3),
    ]
    assert decision.moves == [SplitMove(split=1, giver=0, taker=2, start=5, stop=10)]
    assert policy.pieces({2: 7}, state)[2] == [Piece(split=1, start=5, stop=10), Piece(split=1, start=5, stop=7)]


def test_splits_swap_places_when_they_are_more_than_the_gap_apart() -> None:
    """Alg. 2, lines 8 to 10, with P_t = 5."""
    splits = [Split(start=0, stop=10, owner=0, processed=20), Split(start=10, stop=20, owner=1, processed=79)]
    policy = resolve("data", "exchange", splits=1)
    state, decision = policy.rebalance({0: 100.0, 1: 400.0}, SplitsState(splits=splits))
    assert decision.moves == []
    assert decision.reason == ("split 0 of w0 was processed 2 times, split 1 of w1 7: at most 5 apart")
    state, decision = policy.rebalance({0: 100.0, 1: 400.0}, advance(policy, {1: 1}, state))
    assert decision.moves == [
        SplitMove(split=0, giver=0, taker=1, start=0, stop=10),
        SplitMove(split=1, giver=1, taker=0, start=10, stop=20),
    ]
    assert decision.reason == (
        "split 0 of w0 was processed 2 times, split 1 of w1 8: more than 5 apart, they swap places"
    )
    state, decision = policy.rebalance({0: 100.0, 1: 400.0}, state)
    assert decision.moves == []
    assert decision.reason.endswith("it is not known to be on the slower machine (w1 400 samples/s, w0 100 samples/s)")


def test_as_written_splits_swap_back_and_forth() -> None:
    """Ruling 19: 68 swaps instead of 20 in the rulings' simulation."""
    shares = {0: 16, 1: 40, 2: 40, 3: 64}
    swaps = {}
    for literal in (False, True):
        policy = resolve("data", "exchange", splits=1, literal=literal)
        _, moves = train(policy, shares, samples=1280, iterations=700)
        swaps[literal] = sum(bool(moved) for moved in moves)
    assert swaps[True] > 3 * swaps[False] > 0


def test_swapping_keeps_process_counts_together() -> None:
    shares = {0: 16, 1: 40, 2: 40, 3: 64}
    states, _ = train(resolve("data", "exchange", splits=2), shares, samples=640, iterations=400)
    counts = [split.count for split in states[-1].splits]
    alone, _ = train(resolve("data", "rotation", splits=2), shares, samples=640, iterations=400)
    assert max(counts) - min(counts) <= 8
    assert max(split.count for split in alone[-1].splits) - min(split.count for split in alone[-1].splits) == 120


def test_the_partition_manager_bounds_the_gap_of_traversals_and_moves_once() -> None:
    """LB-BSP section 7, note 13: five workers, batches of 64 to 192, gap 2."""
    shares = {0: 64, 1: 96, 2: 128, 3: 160, 4: 192}
    policy = resolve("data", "exchange", method="migrate")
    states, moves = train(policy, shares, samples=10_000, iterations=1000)
    assert [len(states[-1].owned(rank)) for rank in range(5)] == [2, 3, 4, 5, 6]
    assert sum(bool(moved) for moved in moves) <= 4
    assert not any(moves[300:])
    for state in states:
        passes = []
        for rank in range(5):
            own = [state.splits[index] for index in state.owned(rank)]
            passes.append(sum(s.processed - s.counted_from for s in own) / sum(s.size for s in own))
        assert max(passes) - min(passes) <= 2


def test_a_migration_reports_what_moves_and_counts_begin_anew() -> None:
    policy = resolve("data", "exchange", method="migrate")
    states, moves = train(policy, {0: 50, 1: 150}, samples=1600, iterations=17)
    (moved,) = [moved for moved in moves if moved]
    assert moved == [
        SplitMove(split=number, giver=0, taker=1, start=number * 200, stop=number * 200 + 200) for number in (1, 2)
    ]
    assert [split.count for split in states[-1].splits] == [0] * 8


def test_splits_of_a_worker_that_left_go_to_who_has_fewest() -> None:
    policy = resolve("data", "rotation")
    state, _ = policy.partition(120, [0, 1, 2])
    state, decision = policy.adopt([0, 2], state)
    assert [(move.split, move.giver, move.taker) for move in decision.moves] == [
        (4, 1, 0),
        (5, 1, 2),
        (6, 1, 0),
        (7, 1, 2),
    ]
    assert decision.reason == "4 splits (40 samples) change hands for a roster of 2 workers"
    state, decision = policy.adopt([0, 2, 7], state)
    assert [len(state.owned(rank)) for rank in (0, 2, 7)] == [4, 4, 4]


def test_a_roster_that_stays_moves_nothing() -> None:
    policy = resolve("data", "exchange")
    state, _ = policy.partition(120, [0, 1, 2])
    assert policy.adopt([2, 1, 0], state)[1].moves == []
