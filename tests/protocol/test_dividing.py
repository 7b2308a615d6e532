"""Which samples belong to which iteration and rank: each one once, whatever the shares."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.protocol.dividing import Pass, Span, divide, parts, spans, within

WEIGHTS = st.lists(st.integers(0, 500), min_size=1, max_size=12)


@given(WEIGHTS, st.integers(0, 5_000), st.sampled_from([1, 2, 8, 32]))
def test_a_division_is_complete_and_in_multiples_but_for_the_remainder(
    weights: list[int], size: int, unit: int
) -> None:
    shares = divide(weights, size, unit)
    assert (sum(shares), len(shares), min(shares) >= 0) == (size, len(weights), True)
    assert sum(share % unit for share in shares) == size % unit


@given(st.lists(st.integers(0, 60), min_size=1, max_size=12), st.sampled_from([1, 4]))
def test_a_division_that_fits_is_kept(units: list[int], unit: int) -> None:
    shares = [unit * each for each in units]
    assert divide(shares, sum(shares), unit) == shares


@given(st.lists(st.integers(1, 500), min_size=1, max_size=12), st.integers(0, 5_000))
def test_no_share_is_a_unit_off_its_proportion(weights: list[int], size: int) -> None:
    exact = [size * weight / sum(weights) for weight in weights]
    assert all(abs(a - b) < 1 + 1e-9 for a, b in zip(divide(weights, size), exact, strict=True))


@given(st.data(), st.sampled_from([1, 2, 8]))
def test_ceilings_hold_wherever_there_is_room_and_the_batch_is_kept(data: st.DataObject, unit: int) -> None:
    shares = [unit * each for each in data.draw(st.lists(st.integers(0, 60), min_size=1, max_size=8))]
    ceilings = data.draw(st.lists(st.integers(0, 600), min_size=len(shares), max_size=len(shares)))
    fitted = within(shares, ceilings, unit)
    bounds = [ceiling // unit * unit if ceiling else sum(shares) for ceiling in ceilings]
    assert sum(fitted) == sum(shares)
    assert not any(share % unit for share in fitted)
    if sum(bounds) >= sum(shares):
        assert all(share <= bound for share, bound in zip(fitted, bounds, strict=True))


def test_a_rank_that_ran_short_of_memory_gives_to_those_with_room() -> None:
    assert within([64, 64, 64, 64], [0, 32, 0, 0]) == [75, 32, 75, 74]


@given(st.integers(1, 400), st.integers(1, 90), st.integers(0, 400), st.booleans())
def test_the_iterations_of_a_pass_take_each_sample_once(samples: int, batch: int, begin: int, drop_last: bool) -> None:
    each = Pass(number=3, first=17, samples=samples, batch=batch, begin=begin, drop_last=drop_last)
    taken = [each.span(17 + k) for k in range(each.iterations)]
    positions = [position for start, size in taken for position in range(start, start + size)]
    assert positions == [*range(begin, samples)][: len(positions)]
    assert (
        len(positions) == max(0, samples - begin) // batch * batch if drop_last else begin + len(positions) >= samples
    )


def test_another_passs_iteration_is_refused() -> None:
    with pytest.raises(IndexError, match="iteration 9 is not of pass 1: those are 4 to 7"):
        Pass(number=1, first=4, samples=40, batch=10).span(9)


@given(WEIGHTS, st.integers(1, 9))
def test_ranks_and_micro_batches_lie_side_by_side(shares: list[int], count: int) -> None:
    each = spans(Span(100, sum(shares)), shares)
    pieces = [piece for span in each for piece in parts(span, count)]
    positions = [position for start, size in pieces for position in range(start, start + size)]
    assert positions == [*range(100, 100 + sum(shares))]
    assert [span.size for span in each] == shares
    assert all(max(a) - min(a) <= 1 for a in ([p.size for p in parts(span, count)] for span in each))
