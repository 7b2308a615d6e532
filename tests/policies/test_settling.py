"""New divisions of shares are adopted where they gain more than noise."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.core.choices import ShareDecision
from controlplane.policies.batching.settling import LEAST_GAIN, Habit, Taken, gain_of, learn, settle
from tests.policies.cluster import observe, request, resolve

SPEEDS = [1000.0, 1000.0, 500.0, 250.0]
shares = st.dictionaries(st.integers(0, 5), st.integers(1, 50), min_size=2, max_size=5)


def train(*, literal: bool, noise: float, iterations: int = 300, drift: float = 0.0, predictor: str = "ema"):
    """Mean time of an iteration without its noise, changes of shares, and the last shares."""
    chance = random.Random(3)
    policy = resolve("batching", "lb-bsp-cpu", predictor=predictor, literal=literal)
    state, decision = policy.start(request(dict.fromkeys(range(4), 64)), None)
    whole, changes, current = 0.0, 0, decision.shares
    for iteration in range(iterations):
        speeds = [s * (1 + drift * math.sin(iteration / 60 + rank)) for rank, s in enumerate(SPEEDS)]
        whole += max(share / speeds[rank] for rank, share in current.items())
        seen = observe([speed / chance.lognormvariate(0, noise) for speed in speeds], current, sigma=0.0)
        state, decision = policy.decide(request(current), seen, state)
        changes += decision.shares != current
        current = decision.shares
    return whole / iterations, changes, current


@pytest.mark.parametrize("predictor", ["ema", "memoryless"])
@pytest.mark.parametrize("noise", [0.01, 0.05])
@pytest.mark.parametrize("drift", [0.0, 0.2])
def test_fewer_changes_cost_no_time(noise, drift, predictor):
    before_s, many, _ = train(literal=True, noise=noise, drift=drift, predictor=predictor)
    after_s, few, _ = train(literal=False, noise=noise, drift=drift, predictor=predictor)
    assert few < many / (1.5 if predictor == "ema" else 1)
    assert after_s <= 1.005 * before_s


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.03])
def test_shares_settle_within_two_samples_of_proportional_and_stay(noise):
    _, changes, last = train(literal=False, noise=noise)
    ideal = [256 * speed / sum(SPEEDS) for speed in SPEEDS]
    assert all(abs(share - ideal[rank]) <= 2 for rank, share in last.items())
    assert changes <= 30


def changes_of(name: str, *, noise: float, iterations: int = 300) -> list[tuple[int, bool]]:
    """When the policy changes shares of steady workers, and whether the slowest then truly takes longer."""
    chance = random.Random(1)
    policy = resolve("batching", name)
    state, decision = policy.start(request(dict.fromkeys(range(4), 64)), None)
    found: list[tuple[int, bool]] = []
    for iteration in range(iterations):
        current = decision.shares
        seen = observe([speed * chance.gauss(1, noise) for speed in SPEEDS], current, iteration=iteration)
        state, decision = policy.decide(request(current, iteration=iteration + 1), seen, state)
        if decision.shares != current:
            before, after = (
                max(share / SPEEDS[rank] for rank, share in shares.items()) for shares in (current, decision.shares)
            )
            found.append((iteration, after > before))
    return found


@pytest.mark.parametrize("name", ["lb-bsp-gpu", "lb-bsp-linear"])
def test_steady_workers_hand_no_sample_to_and_fro(name: str) -> None:
    assert [at for at, _ in changes_of(name, noise=0.0) if at >= 100] == []


def test_lines_that_are_known_are_not_followed_within_their_noise() -> None:
    found = changes_of("lb-bsp-linear", noise=0.05)
    assert len(found) <= 20
    assert sum(slower for _, slower in found) <= 5


def test_lines_of_speeds_that_drift_are_still_followed() -> None:
    policy = resolve("batching", "lb-bsp-linear")
    state, decision = policy.start(request(dict.fromkeys(range(4), 64)), None)
    whole = least = 0.0
    for iteration in range(300):
        speeds = [speed * (1 + 0.2 * math.sin(iteration / 60 + rank)) for rank, speed in enumerate(SPEEDS)]
        if iteration >= 20:
            whole += max(share / speeds[rank] for rank, share in decision.shares.items())
            least += 256 / sum(speeds)
        seen = observe(speeds, decision.shares, iteration=iteration)
        state, decision = policy.decide(request(decision.shares, iteration=iteration + 1), seen, state)
    assert whole <= 1.08 * least, "held still, they would be learned too late: 1.1 and more"


def test_small_gain_that_lasts_is_adopted_in_the_end():
    """A worker is 3 % slower than its share has it, and predictions are off by 10 %."""
    chance = random.Random(5)
    current, proposal = {0: 103, 1: 97}, {0: 100, 1: 100}
    habit = Habit(noise=0.1)
    requested, decision = request(current), ShareDecision(shares=proposal, reason="as measured")
    late, told = 0, None
    while told is None or told.shares != proposal:
        late += 1
        times = {rank: share / 1000 * chance.lognormvariate(0, 0.02) for rank, share in current.items()}
        habit = learn(habit, {r: Taken(samples=current[r], busy_s=t, per_sample=0.001) for r, t in times.items()})
        habit = Habit(noise=0.1, missed=habit.missed, proposed=habit.proposed)
        habit, told = settle(requested, decision, {0: (1, 200), 1: (1, 200)}, habit, gain=0.029)
    assert late < 100


@settings(deadline=None)
@given(current=shares, data=st.data())
def test_division_that_is_predicted_to_be_slower_is_never_adopted_for_its_own_sake(current, data):
    speeds = {rank: data.draw(st.floats(1.0, 1e4)) for rank in current}
    order = data.draw(st.permutations(sorted(current)))
    proposal = dict(zip(sorted(current), (current[rank] for rank in order), strict=True))
    habit = Habit(noise=data.draw(st.floats(0, 1)), missed=data.draw(st.floats(-1, 1)))
    before_s = {rank: share / speeds[rank] for rank, share in current.items()}
    after_s = {rank: share / speeds[rank] for rank, share in proposal.items()}
    decision = ShareDecision(shares=proposal, reason="another division")
    gain = gain_of(before_s, after_s)
    _, told = settle(request(current), decision, dict.fromkeys(current, (1, 50)), habit, gain=gain)
    if max(after_s.values()) >= max(before_s.values()):
        assert told.shares == current
    else:
        assert (told.shares == proposal) == (proposal == current or gain > habit.threshold)
    assert habit.threshold >= LEAST_GAIN


@settings(deadline=None)
@given(current=shares, over=st.integers(1, 10))
def test_limits_that_the_present_division_breaks_are_always_heeded(current, over):
    worst = max(current, key=lambda rank: current[rank])
    limits = dict.fromkeys(current, (1, 100)) | {worst: (1, max(1, current[worst] - over))}
    proposal = {**current, worst: limits[worst][1]}
    decision = ShareDecision(shares=proposal, reason="within its limits")
    _, told = settle(request(current), decision, limits, Habit(noise=1.0), gain=-1.0)
    assert told.shares == (current if proposal == current else proposal)


def test_what_is_held_back_reports_what_it_would_have_gained():
    requested = request({0: 64, 1: 64})
    decision = ShareDecision(shares={0: 65, 1: 63}, reason="ema expects little")
    _, told = settle(requested, decision, {0: (1, 128), 1: (1, 128)}, Habit(noise=0.04), gain=0.012)
    assert told.reason == (
        "shares stay as they are: new shares would save 1.2% of the iteration, less than the threshold of 2.0%; "
        "ema expects little"
    )
