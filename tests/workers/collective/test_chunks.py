"""How a vector is cut so that its end can be summed early, and that sums go from its back to its front."""

from datetime import timedelta

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed import HashStore

from workers.collective.chunks import Sums, chunk_offsets
from workers.collective.group import Group, Place


@given(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=12), least=st.integers(1, 120))
def test_stretches_are_whole_tensors_from_the_back_and_the_front_comes_last(sizes: list[int], least: int) -> None:
    begins = chunk_offsets(sizes, least=least)
    borders = {sum(sizes[:count]) for count in range(len(sizes))}
    lengths = [end - begin for begin, end in zip(begins, [sum(sizes), *begins], strict=False)]
    assert begins[-1] == 0
    assert set(begins) <= borders
    assert sum(lengths) == sum(sizes)
    assert all(length >= least for length in lengths[:-1])


def test_a_stretch_is_due_once_it_is_final_and_the_front_never_is() -> None:
    store = HashStore()
    store.set_timeout(timedelta(seconds=30))
    group = Group(store, Place(rank=0, size=1, host="127.0.0.1"))
    vector = torch.arange(10.0)
    sums = Sums(group, vector, [7, 4, 0], timeout_s=30.0)
    assert sums.next_before(8) is None
    due = sums.next_before(5)
    assert due == slice(7, 10)
    sums.begin(slice(7, 10))
    assert sums.next_before(5) is None
    assert sums.rest == [slice(4, 7), slice(0, 4)]
    sums.begin(slice(4, 7))
    assert sums.next_before(0) is None
    sums.begin(slice(0, 4))
    sums.wait()
    assert sums.rest == []
    assert torch.equal(vector, torch.arange(10.0))
    group.leave()
