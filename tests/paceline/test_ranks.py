"""What a test says whose ranks do not end."""

import threading

import pytest

from tests.paceline.ranks import run_ranks


def stuck(rank: int, world: int) -> None:
    if rank == 1:
        threading.Event().wait()


def test_a_test_whose_ranks_do_not_end_says_where_they_are() -> None:
    with pytest.raises(AssertionError, match=r"(?s)rank 1 gave no result within .*rank 0: exit code 0.*in stuck"):
        run_ranks(stuck, 2, seconds=0.5)
