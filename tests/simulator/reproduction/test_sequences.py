"""How far the updates of asynchronous workers are from BSP's sequence (PSP section 5, Fig. 7c)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.simulator.reproduction.measures import sequence_inconsistency


@pytest.mark.parametrize(
    ("progress", "differ"),
    [
        ([5, 5, 5, 5], 0),
        # The sixth and seventh of the true sequence are of ranks 0 and 1.
        ([2, 2, 1, 1], 0),
        ([1, 1, 2, 2], 4),
        # 8 updates in BSP's order are 2 of each; rank 0 has two more, and two have one less.
        ([4, 2, 1, 1], 4),
    ],
)
def test_updates_too_many_and_updates_missing_are_counted(progress: list[int], differ: int) -> None:
    assert sequence_inconsistency(progress) == differ / 4


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20))
def test_it_is_zero_for_the_true_sequence_only_and_as_many_are_missing_as_too_many(progress: list[int]) -> None:
    total, workers = sum(progress), len(progress)
    true = [(total - rank - 1) // workers + 1 for rank in range(workers)]
    differ = round(sequence_inconsistency(progress) * workers)
    assert (differ == 0) == (progress == true)
    assert differ % 2 == 0
