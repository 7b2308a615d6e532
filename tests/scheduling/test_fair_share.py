"""The laws of fair shares: no one starves, and shares become those of the weights."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.scheduling.fair_share import HALF_LIFE_S, Share, decayed, fair_order
from controlplane.scheduling.queueing import Offer, Outcome, SlotRequest, by_place, plan


def ask(job: int, team: int = 0, workers: int = 1, **more: object) -> SlotRequest:
    fields = {"least": workers, "labels": {}, "servers": 0} | more
    return SlotRequest(job=job, team=team, workers=workers, **fields)  # type: ignore[arg-type]


REQUESTS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(-2, 2), st.integers(-3, 0)), max_size=12
).map(
    lambda rows: [
        ask(job, team, workers, priority=priority, order=order)
        for job, (team, workers, priority, order) in enumerate(rows, start=1)
    ]
)
SHARES = st.dictionaries(
    st.integers(0, 3), st.builds(Share, weight=st.floats(0.01, 1_000), used=st.floats(0, 1e9)), max_size=4
)


@given(REQUESTS, SHARES)
def test_it_is_an_order_of_the_queue_and_keeps_that_of_each_team(
    queue: list[SlotRequest], shares: dict[int, Share]
) -> None:
    found = fair_order(queue, shares)
    assert sorted(each.job for each in found) == sorted(each.job for each in queue)
    for team in {each.team for each in queue}:
        assert [each for each in found if each.team == team] == by_place([each for each in queue if each.team == team])


@given(REQUESTS, SHARES)
def test_one_team_alone_is_ordered_by_priority_order_and_submission(
    queue: list[SlotRequest], shares: dict[int, Share]
) -> None:
    own = [each for each in queue if each.team == 1]
    assert fair_order(own, shares) == by_place(own)


@given(REQUESTS, SHARES)
def test_the_team_that_had_least_for_its_weight_is_first(queue: list[SlotRequest], shares: dict[int, Share]) -> None:
    if queue:
        first = fair_order(queue, shares)[0].team
        spent = {each.team: shares.get(each.team, Share()).spent for each in queue}
        assert spent[first] == min(spent.values())


def served(weights: dict[int, float], turns: int, *, hours: float = 0.1) -> dict[int, int]:
    """How often each team was served, where all of them always have a job waiting and one slot is free at a time."""
    used, counts = dict.fromkeys(weights, 0.0), dict.fromkeys(weights, 0)
    for turn in range(turns):
        queue = [ask(10 * turn + team, team) for team in weights]
        shares = {team: Share(weight=weight, used=used[team]) for team, weight in weights.items()}
        chosen = fair_order(queue, shares)[0].team
        counts[chosen] += 1
        for team in used:
            used[team] = decayed(used[team], 3600 * hours) + (3600 * hours if team == chosen else 0.0)
    return counts


@given(st.dictionaries(st.integers(1, 5), st.floats(1, 10), min_size=2, max_size=5))
def test_shares_converge_to_the_weights(weights: dict[int, float]) -> None:
    counts = served(weights, 600)
    for team, weight in weights.items():
        assert counts[team] / 600 == pytest.approx(weight / sum(weights.values()), abs=0.04)


@given(st.dictionaries(st.integers(1, 4), st.floats(0.5, 20), min_size=2, max_size=4))
def test_no_team_starves(weights: dict[int, float]) -> None:
    assert min(served(weights, 400).values()) > 0


@given(REQUESTS, SHARES)
def test_a_high_priority_of_one_team_does_not_put_it_before_another_that_had_less(
    queue: list[SlotRequest], shares: dict[int, Share]
) -> None:
    greedy, modest = ask(1001, 1, priority=100), ask(1002, 2, priority=-100)
    found = fair_order([greedy, modest], {1: Share(used=10.0), 2: Share(used=1.0)})
    assert found == [modest, greedy]


def test_usage_counts_half_after_a_day() -> None:
    assert decayed(100.0, HALF_LIFE_S) == pytest.approx(50.0)
    assert decayed(100.0, -5.0) == 100.0


def offer(**more: object) -> Offer:
    fields = {"machine": 1, "workers": 8, "servers": 0, "free_workers": 8, "free_servers": 0, "labels": {}}
    return Offer(**(fields | more))  # type: ignore[arg-type]


def test_a_machine_of_a_team_runs_no_jobs_of_others() -> None:
    verdicts = {each.request.job: each.outcome for each in plan([ask(1, 1), ask(2, 2), ask(3)], [offer(team=2)], 0.0)}
    assert verdicts == {1: Outcome.NEVER, 2: Outcome.STARTS, 3: Outcome.NEVER}


def test_a_job_beyond_a_quota_waits_and_keeps_nothing_from_others() -> None:
    queue = [ask(1, workers=3, subjects=("user 1",)), ask(2, workers=3, subjects=("user 1",)), ask(3, workers=5)]
    first, second, third = plan(queue, [offer()], 1e6, room={"user 1": 4})
    assert (first.outcome, second.outcome, second.bound, second.takes) == (Outcome.STARTS, Outcome.WAITS, "user 1", ())
    assert (third.outcome, third.ahead) == (Outcome.STARTS, (1,))


def test_an_elastic_job_uses_no_more_than_its_quota() -> None:
    [verdict] = plan([ask(1, workers=6, least=2, subjects=("team 1",))], [offer()], 0.0, room={"team 1": 4})
    assert sum(take.workers for take in verdict.takes) == 4


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 2)), max_size=8), st.integers(0, 12), st.integers(0, 12))
def test_what_starts_is_never_more_than_a_quota(rows: list[tuple[int, int]], one: int, two: int) -> None:
    queue = [ask(job, workers=workers, subjects=(f"user {user}",)) for job, (workers, user) in enumerate(rows)]
    room = {"user 1": one, "user 2": two}
    started = [
        each
        for each in plan(queue, [offer(workers=40, free_workers=40)], 0.0, room=room)
        if each.outcome is Outcome.STARTS
    ]
    for subject, limit in room.items():
        assert sum(take.workers for each in started if subject in each.request.subjects for take in each.takes) <= limit
