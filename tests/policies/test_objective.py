"""Shares by energy and cost, against every possible division of small batches."""

import itertools
import math
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.choices import ShareDecision, ShareRequest
from controlplane.policies.batching import objective
from controlplane.policies.batching.min_max import Line, min_max
from controlplane.policies.batching.objective import Rates, frugal, spent
from controlplane.protocol.energy import Draw

Case = tuple[int, dict[int, Line], dict[int, Rates], dict[int, tuple[int, int]], int]

positive = st.floats(0.01, 10.0)


@st.composite
def cases(draw: st.DrawFn, *, most: int = 14, workers: int = 3) -> Case:
    """A batch with shares that exist, in multiples of up to three samples."""
    count, multiple = draw(st.integers(1, workers)), draw(st.integers(1, 3))
    begins = st.floats(0.0, 5.0)
    lines = {rank: Line(begin=draw(begins), per_sample=draw(positive)) for rank in range(count)}
    rates = {rank: Rates(idle=draw(begins), busy=draw(begins)) for rank in range(count)}
    limits, total = {}, 0
    for rank in range(count):
        low = draw(st.integers(1, 3))
        width = draw(st.integers(0, most))
        limits[rank] = low * multiple, (low + width) * multiple
        total += (low + draw(st.integers(0, width))) * multiple
    return total, lines, rates, limits, multiple


def divisions(total: int, limits: dict[int, tuple[int, int]], multiple: int) -> Iterator[dict[int, int]]:
    ranges = [range(low, high + 1) for low, high in limits.values()]
    for shares in itertools.product(*ranges):
        if sum(shares) == total and all(share % multiple == 0 for share in shares):
            yield dict(enumerate(shares))


def longest(shares: dict[int, int], lines: dict[int, Line]) -> float:
    return max(lines[rank].at(share) for rank, share in shares.items())


def fastest(case: Case) -> dict[int, int]:
    total, lines, _, limits, multiple = case
    scaled = {rank: Line(begin=line.begin, per_sample=line.per_sample * multiple) for rank, line in lines.items()}
    bounds = {rank: (low // multiple, high // multiple) for rank, (low, high) in limits.items()}
    return {rank: share * multiple for rank, share in min_max(total // multiple, scaled, bounds).items()}


slacks = st.sampled_from([0.0, 0.05, 0.1, 0.3, 1.0, 5.0])


@given(case=cases(), slack=slacks)
def test_no_other_division_within_the_slack_uses_less(case: Case, slack: float) -> None:
    total, lines, rates, limits, multiple = case
    best = fastest(case)
    found = frugal(best, lines, rates, limits, slack=slack, multiple=multiple)
    bound = (1 + slack) * longest(best, lines)
    possible = [shares for shares in divisions(total, limits, multiple) if longest(shares, lines) <= bound * (1 - 1e-9)]
    least = min((spent(shares, lines, rates) for shares in possible), default=math.inf) if slack else math.inf
    assert spent(found, lines, rates) <= least * (1 + 1e-9) + 1e-9


@given(case=cases(most=400, workers=8), slack=slacks)
def test_laws_of_shares_by_an_objective(case: Case, slack: float) -> None:
    total, lines, rates, limits, multiple = case
    best = fastest(case)
    found = frugal(best, lines, rates, limits, slack=slack, multiple=multiple)
    assert sum(found.values()) == total
    assert all(limits[rank][0] <= share <= limits[rank][1] for rank, share in found.items())
    assert all(share % multiple == 0 for share in found.values())
    assert longest(found, lines) <= (1 + slack) * longest(best, lines) * (1 + 1e-12)
    assert spent(found, lines, rates) <= spent(best, lines, rates)


@given(case=cases(most=400, workers=8))
def test_without_slack_the_fastest_shares_stay(case: Case) -> None:
    _, lines, rates, limits, multiple = case
    best = fastest(case)
    assert frugal(best, lines, rates, limits, slack=0.0, multiple=multiple) == best


@given(case=cases(most=60, workers=4), slack=slacks)
def test_the_search_over_many_ends_is_close_to_trying_them_all(case: Case, slack: float) -> None:
    _, lines, rates, limits, multiple = case
    best = fastest(case)
    exact = spent(frugal(best, lines, rates, limits, slack=slack, multiple=multiple), lines, rates)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objective, "EXHAUSTIVE", 0)
        searched = frugal(best, lines, rates, limits, slack=slack, multiple=multiple)
    assert sum(searched.values()) == sum(best.values())
    assert longest(searched, lines) <= (1 + slack) * longest(best, lines) * (1 + 1e-12)
    # What one more step of one sample on every worker could change.
    step = sum((rates[rank].idle + rates[rank].busy) * lines[rank].per_sample * multiple for rank in lines)
    idle = sum(rate.idle for rate in rates.values())
    step += idle * max(line.per_sample for line in lines.values()) * multiple
    assert exact <= spent(searched, lines, rates) * (1 + 1e-9) <= (exact + step) * (1 + 1e-6)


@given(case=cases(), slack=slacks, worth=st.sampled_from([0.01, 0.1]))
def test_no_faster_division_uses_about_as_little(case: Case, slack: float, worth: float) -> None:
    _, lines, rates, limits, multiple = case
    best = fastest(case)
    least = spent(frugal(best, lines, rates, limits, slack=slack, multiple=multiple), lines, rates)
    found = frugal(best, lines, rates, limits, slack=slack, multiple=multiple, worth=worth)
    assert spent(found, lines, rates) <= least * (1 + worth) * (1 + 1e-9)
    assert spent(found, lines, rates) <= spent(best, lines, rates)


def test_samples_go_from_a_thirsty_machine_to_an_efficient_one_as_far_as_the_slack_allows() -> None:
    lines = {0: Line(begin=0.0, per_sample=0.001), 1: Line(begin=0.0, per_sample=0.001)}
    rates = {0: Rates(idle=0.0, busy=100.0), 1: Rates(idle=0.0, busy=300.0)}
    limits = {0: (1, 200), 1: (1, 200)}
    assert frugal({0: 100, 1: 100}, lines, rates, limits, slack=0.2) == {0: 120, 1: 80}


def test_where_idle_power_costs_more_than_is_saved_the_fastest_shares_stay() -> None:
    lines = {0: Line(begin=0.0, per_sample=0.001), 1: Line(begin=0.0, per_sample=0.001)}
    rates = {0: Rates(idle=90.0, busy=10.0), 1: Rates(idle=90.0, busy=30.0)}
    limits = {0: (1, 200), 1: (1, 200)}
    assert frugal({0: 100, 1: 100}, lines, rates, limits, slack=0.2) == {0: 100, 1: 100}


def test_machine_hours_alone_cost_least_with_the_fastest_shares() -> None:
    lines = {0: Line(begin=0.0, per_sample=0.001), 1: Line(begin=0.0, per_sample=0.004)}
    rates = {0: Rates(idle=5.0, busy=0.0), 1: Rates(idle=1.0, busy=0.0)}
    limits = {0: (1, 200), 1: (1, 200)}
    assert frugal({0: 160, 1: 40}, lines, rates, limits, slack=1.0) == {0: 160, 1: 40}


def test_a_cost_without_any_price_leaves_the_fastest_shares_and_says_so() -> None:
    request = ShareRequest(
        iteration=5,
        total=200,
        current={0: 100, 1: 100},
        limits={0: (1, 200), 1: (1, 200)},
        draws={rank: Draw(idle_watts=60.0, busy_watts=300.0) for rank in (0, 1)},
    )
    lines = {0: Line(begin=0.0, per_sample=0.001), 1: Line(begin=0.0, per_sample=0.004)}
    fastest = ShareDecision(shares={0: 160, 1: 40}, reason="fastest")
    adopted = objective.pursue("cost", 0.2, request, fastest, lines, request.limits)
    assert adopted is not None
    assert adopted.decision.shares == fastest.shares
    assert adopted.decision.reason.startswith("fastest; no price is known (energy.kwh, energy.hour")
