import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from controlplane.protocol.orders import Orders
from controlplane.protocol.schedule import task_of
from workers.trainer.sampler import PermutationSampler

COUNT = 37


def orders(*, share: int, offset: int, global_batch: int, origin: tuple[int, int] = (0, 0)) -> Orders:
    return Orders(
        incarnation=0,
        generation=1,
        sequence=1,
        share=share,
        offset=offset,
        global_batch=global_batch,
        origin_iteration=origin[0],
        origin_position=origin[1],
        share_from=0,
        share_until=100,
        watermark=100,
        placement_version=1,
    )


@given(st.integers(0, 2**40), st.integers(0, 1000))
def test_each_pass_is_a_permutation_of_all_samples(seed: int, number: int) -> None:
    sampler = PermutationSampler(seed=seed, sample_count=COUNT)
    assert sorted(sampler.samples(number * COUNT, COUNT)) == list(range(COUNT))


@given(st.integers(0, 300), st.lists(st.integers(0, 60), min_size=1, max_size=6))
def test_any_division_of_a_range_takes_the_same_samples(position: int, shares: list[int]) -> None:
    sampler = PermutationSampler(seed=7, sample_count=COUNT)
    whole = sampler.samples(position, sum(shares))
    starts = [position + sum(shares[:rank]) for rank in range(len(shares))]
    parts = [sampler.samples(start, share) for start, share in zip(starts, shares, strict=True)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert whole.dtype == np.int64


@given(st.lists(st.integers(0, 20), min_size=1, max_size=5).filter(any), st.integers(0, 50))
def test_the_shares_of_an_iteration_partition_its_global_batch(shares: list[int], iteration: int) -> None:
    batch = sum(shares)
    ranges = [
        range(begin, begin + share)
        for rank, share in enumerate(shares)
        for begin in [task_of(orders(share=share, offset=sum(shares[:rank]), global_batch=batch), iteration).position]
    ]
    assert [p for r in ranges for p in r] == list(range(iteration * batch, (iteration + 1) * batch))


def test_a_new_origin_continues_where_it_declares() -> None:
    assert task_of(orders(share=4, offset=6, global_batch=20, origin=(10, 300)), 12).position == 300 + 2 * 20 + 6


def test_a_redone_iteration_takes_the_same_samples_in_any_process() -> None:
    first = PermutationSampler(seed=3, sample_count=COUNT)
    before = [first.samples(k * 16, 16).tolist() for k in range(12)]
    again = PermutationSampler(seed=3, sample_count=COUNT)
    assert [again.samples(k * 16, 16).tolist() for k in reversed(range(12))] == before[::-1]


def test_passes_and_seeds_differ() -> None:
    one, two = PermutationSampler(seed=1, sample_count=COUNT), PermutationSampler(seed=2, sample_count=COUNT)
    firsts = [one.samples(0, COUNT).tolist(), one.samples(COUNT, COUNT).tolist(), two.samples(0, COUNT).tolist()]
    assert len({tuple(first) for first in firsts}) == 3


def test_no_samples_are_an_empty_range() -> None:
    empty = PermutationSampler(seed=1, sample_count=COUNT).samples(5, 0)
    assert (len(empty), empty.dtype) == (0, np.int64)
