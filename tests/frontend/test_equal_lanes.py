"""Of many workers, those that look the same are one lane, and the sentence above counts all of them."""

from hypothesis import given
from hypothesis import strategies as st

from frontend.figures.lanes import Lane, Lanes, Phases, merged, verdict


def lane(rank: int, *, busy_s: float, share: int = 64, flagged: bool = False) -> Lane:
    now = Phases(data_s=0.0, compute_s=busy_s, communication_s=0.01, waiting_s=1.0 - busy_s, coordination_s=0.0)
    return Lane(rank=rank, machine=f"m{rank}", share=share, now=now, even_share=64, even=None, flagged=flagged)


def lanes(rows: list[Lane]) -> Lanes:
    return Lanes(rows=tuple(rows), roster=9, reporting=9, iterations=1, adaptive=True)


def test_equal_workers_are_one_lane_and_count_as_many() -> None:
    rows = [lane(rank, busy_s=0.3 + 0.001 * rank) for rank in range(8)] + [lane(8, busy_s=0.99)]
    found = merged(rows)
    assert [(each.title, each.count, each.machines) for each in found] == [("w0 to w7", 8, 8), ("w8", 1, 1)]
    apart, together = lanes(rows), lanes(found)
    assert together.shown == 9
    assert verdict(together) == verdict(apart)


def test_a_flagged_worker_and_another_share_have_their_own_lane() -> None:
    rows = [lane(0, busy_s=0.3), lane(1, busy_s=0.3, flagged=True), lane(2, busy_s=0.3, share=80), lane(3, busy_s=0.3)]
    assert [each.title for each in merged(rows)] == ["w0, w3", "w1", "w2"]


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=30))
def test_merging_loses_no_worker(busy: list[float]) -> None:
    found = merged([lane(rank, busy_s=each) for rank, each in enumerate(busy)])
    ranks = sorted(rank for each in found for rank in (each.rank, *each.others))
    assert ranks == list(range(len(busy)))
