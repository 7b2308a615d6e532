"""Laws of every registered batching policy, whatever is reported and whatever the limits; registering is joining."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.core.choices import Observation
from controlplane.policies import registry
from controlplane.policies.batching.apportion import ImpossibleShares
from tests.policies.cluster import observe, request, resolve
from tests.support.examples import examples

NAMES = registry.names("batching")
WORKERS = 4

some_seconds = st.floats(0.001, 10.0) | st.sampled_from([0.0, float("nan"), float("inf"), 1e-308, 1e300])
anything = st.builds(
    Observation,
    rank=st.integers(0, WORKERS + 1),
    iteration=st.just(0),
    samples=st.integers(-1, 200),
    compute_s=some_seconds,
    communication_s=some_seconds,
    waiting_s=st.floats(0.0, 10.0),
    cpu=st.floats(0.0, 1.0),
    memory=st.floats(0.0, 1.0),
)
iterations = st.lists(anything, max_size=WORKERS + 2)
"""Also workers that report twice, and workers that are not in the roster."""

speeds = st.lists(st.floats(1.0, 10_000.0), min_size=WORKERS, max_size=WORKERS)

every_policy = pytest.mark.parametrize("name", NAMES)


def kept(policy, state):
    """The state as a snapshot gives it back."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=policy.state_type)


@every_policy
@settings(max_examples=examples(40), deadline=None)
@given(rounds=st.lists(iterations, max_size=6), low=st.integers(0, 40), room=st.integers(0, 200))
def test_shares_sum_to_the_total_within_the_limits_whatever_is_reported(name, rounds, low, room):
    policy = resolve("batching", name)
    high = 64 + room
    state, decision = policy.start(request(dict.fromkeys(range(WORKERS), 64), low=low, high=high), None)
    for seen in rounds:
        asked = request(decision.shares, low=low, high=high)
        state = kept(policy, state)
        state, decision = policy.decide(asked, seen, state)
        assert list(decision.shares) == list(range(WORKERS))
        assert sum(decision.shares.values()) == 64 * WORKERS
        assert all(max(1, low) <= share <= high for share in decision.shares.values())
        assert all(decision.shares[rank] <= ceiling <= high for rank, ceiling in decision.ceilings.items())
        assert decision.budget_s is None or decision.budget_s > 0
        assert decision.reason


@every_policy
@settings(max_examples=examples(25), deadline=None)
@given(rounds=st.lists(iterations, max_size=5))
def test_the_same_state_and_reports_give_the_same_decision_and_leave_the_state_alone(name, rounds):
    policy = resolve("batching", name)
    state, decision = policy.start(request(dict.fromkeys(range(WORKERS), 64)), None)
    for seen in rounds:
        before = msgspec.msgpack.encode(state)
        first = policy.decide(request(decision.shares), seen, state)
        again = policy.decide(request(decision.shares), seen, kept(policy, state))
        assert msgspec.msgpack.encode(state) == before
        assert msgspec.msgpack.encode(first) == msgspec.msgpack.encode(again)
        state, decision = first


@every_policy
@settings(max_examples=examples(25), deadline=None)
@given(of=speeds, order=st.permutations(range(WORKERS)))
def test_the_order_of_reports_does_not_matter(name, of, order):
    policy = resolve("batching", name)
    state, decision = policy.start(request(dict.fromkeys(range(WORKERS), 64)), None)
    other = state
    for iteration in range(8):
        seen = observe(of, decision.shares, iteration=iteration)
        asked = request(decision.shares)
        state, decision = policy.decide(asked, seen, state)
        other, same = policy.decide(asked, [seen[place] for place in order], other)
        assert decision == same


@every_policy
@settings(max_examples=examples(15), deadline=None)
@given(speed=st.floats(10.0, 10_000.0))
def test_equal_workers_keep_shares_at_most_one_apart(name, speed):
    policy = resolve("batching", name)
    state, decision = policy.start(request(dict.fromkeys(range(WORKERS), 64)), None)
    for iteration in range(8):
        seen = observe([speed] * WORKERS, decision.shares, iteration=iteration)
        state, decision = policy.decide(request(decision.shares), seen, state)
        assert max(decision.shares.values()) - min(decision.shares.values()) <= 1


@every_policy
@settings(max_examples=examples(15), deadline=None)
@given(of=speeds, gone=st.integers(0, WORKERS - 1))
def test_when_a_worker_leaves_the_others_take_over_its_samples(name, of, gone):
    policy = resolve("batching", name)
    state, decision = policy.start(request(dict.fromkeys(range(WORKERS), 60)), None)
    for iteration in range(4):
        seen = observe(of, decision.shares, iteration=iteration)
        state, decision = policy.decide(request(decision.shares), seen, state)
    left = {rank: 80 for rank in range(WORKERS) if rank != gone}
    state, decision = policy.start(request(left), kept(policy, state))
    assert (list(decision.shares), sum(decision.shares.values())) == (list(left), 240)
    seen = [one for one in observe(of, decision.shares | {gone: 0}) if one.rank != gone]
    _, decision = policy.decide(request(decision.shares), seen, state)
    assert sum(decision.shares.values()) == 240


@every_policy
def test_one_worker_takes_everything(name):
    policy = resolve("batching", name)
    state, decision = policy.start(request({0: 64}), None)
    for _ in range(3):
        state, decision = policy.decide(request(decision.shares), observe([100.0], decision.shares), state)
    assert decision.shares == {0: 64}


@every_policy
def test_a_worker_a_thousand_times_slower_is_left_at_least_one_sample(name):
    policy = resolve("batching", name)
    state, decision = policy.start(request(dict.fromkeys(range(WORKERS), 64)), None)
    for iteration in range(40):
        seen = observe([1000.0, 1000.0, 1000.0, 1.0], decision.shares, iteration=iteration)
        state, decision = policy.decide(request(decision.shares), seen, state)
    assert decision.shares[3] >= 1
    assert sum(decision.shares.values()) == 256


@every_policy
def test_limits_that_contradict_are_named(name):
    with pytest.raises(ImpossibleShares, match=r"upper limits sum to 200 \(w0 50, w1 50, w2 50, w3 50\)"):
        resolve("batching", name).start(request(dict.fromkeys(range(WORKERS), 64), high=50), None)


@every_policy
def test_the_state_of_another_policy_is_not_taken_for_its_own(name):
    policy = resolve("batching", name)
    even = request(dict.fromkeys(range(WORKERS), 64))
    for other in NAMES:
        foreign = resolve("batching", other).start(even, None)[0]
        assert policy.start(even, foreign)[1].shares == dict.fromkeys(range(WORKERS), 64)
