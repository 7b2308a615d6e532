from controlplane.core.choices import ShareDecision
from controlplane.policies.batching.uniform import Uniform, UniformState
from tests.policies.cluster import observe, request


def test_every_worker_takes_the_same_share_whatever_its_speed() -> None:
    policy, shares = Uniform(), dict.fromkeys(range(4), 64)
    state, first = policy.start(request(shares), None)
    decided = policy.decide(request(shares), observe([1000, 1000, 500, 250], shares), state)
    expected = ShareDecision(shares=shares, reason="256 samples evenly over 4 workers: 64 each")
    assert (first, decided) == (expected, (UniformState(), expected))


def test_a_rest_goes_to_the_lowest_ranks() -> None:
    _, decision = Uniform().start(request({2: 86, 5: 85, 9: 85}), None)
    assert decision == ShareDecision(
        shares={2: 86, 5: 85, 9: 85}, reason="256 samples evenly over 3 workers: 85 or 86 each"
    )


def test_it_requests_no_decision_in_each_iteration() -> None:
    assert not Uniform.every_iteration
