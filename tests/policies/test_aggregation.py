import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.policies.aggregation.rules import RULES, LocalWork, rule

USUAL = LocalWork(steps=500, batch=100, rate=0.01)
"""LB-BSP section 5.5."""

some_samples = st.dictionaries(st.integers(0, 50), st.integers(0, 500), min_size=1, max_size=9).filter(
    lambda samples: sum(samples.values()) > 0
)


@pytest.mark.parametrize("name", RULES)
@given(samples=some_samples)
def test_weights_sum_to_one_and_no_samples_weigh_nothing(name, samples):
    weights = rule(name).weigh(samples)
    assert weights.keys() == samples.keys()
    assert sum(weights.values()) == pytest.approx(1.0)
    assert all((weights[rank] > 0) == (count > 0) for rank, count in samples.items())


@given(samples=some_samples, values=st.lists(st.floats(-10, 10), min_size=60, max_size=60))
def test_means_weighted_by_samples_are_the_sum_over_the_count(samples, values):
    """Eq. 7 and ruling 7: so k-means' sums and counts need no rule of their own."""
    sums = {rank: values[rank] * count for rank, count in samples.items()}
    weights = rule("sample-weighted").weigh(samples)
    mean = sum(weights[rank] * sums[rank] / count for rank, count in samples.items() if count)
    assert mean == pytest.approx(sum(sums.values()) / sum(samples.values()))


def test_naive_weights_differ_from_weights_by_samples_as_soon_as_shares_do() -> None:
    assert rule("naive").weigh({0: 30, 1: 10}) == {0: 0.5, 1: 0.5}
    assert rule("sample-weighted").weigh({0: 30, 1: 10}) == {0: 0.75, 1: 0.25}
    assert rule("sample-weighted").weigh({0: 8, 1: 8}) == rule("naive").weigh({0: 8, 1: 8})


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("fedavg", LocalWork(steps=500, batch=150, rate=0.01)),
        ("fedavg-scaled-steps", LocalWork(steps=750, batch=100, rate=0.01)),
        ("fedavg-scaled-rate", LocalWork(steps=500, batch=150, rate=0.015)),
    ],
)
def test_the_three_ways_to_give_a_fast_client_more_in_a_round(name: str, work: LocalWork) -> None:
    """LB-BSP section 3.5, Fig. 13: each processes 1.5 times the samples of the mean client."""
    scaled = rule(name).scale(USUAL, 1.5)
    assert (scaled.steps, scaled.batch, scaled.rate) == pytest.approx((work.steps, work.batch, work.rate))
    assert scaled.steps * scaled.batch == 75_000


def test_a_very_slow_client_still_does_something() -> None:
    assert rule("fedavg").scale(USUAL, 0.001).batch == 1
    assert rule("fedavg-scaled-steps").scale(USUAL, 0.0001).steps == 1


@pytest.mark.parametrize("name", RULES)
def test_contributions_of_nothing_are_an_error(name: str) -> None:
    with pytest.raises(ValueError, match="2 contributions: found no sample in any of them"):
        rule(name).weigh({0: 0, 1: 0})
    with pytest.raises(ValueError, match="w1: found -3 samples, expected at least 0"):
        rule(name).weigh({0: 5, 1: -3})


def test_an_unknown_rule_names_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="found 'median', expected one of fedavg, fedavg-scaled-rate"):
        rule("median")
