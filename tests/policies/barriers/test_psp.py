"""pBSP and pSSP: who waits, for whom, and when it is looked at again."""

import re
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.barriers import Passage
from controlplane.policies.barriers import psp
from controlplane.protocol.chance import draw, key
from tests.policies.barriers.crowd import Crowd


def waits(crowd: Crowd) -> dict[int, list[int]]:
    return {rank: waiting.behind for rank, waiting in crowd.state.waiting.items()}


def test_worker_waits_for_the_sampled_ones_that_are_behind() -> None:
    crowd = Crowd("pbsp", 3, sample=2)
    passage = crowd.finish(0)
    assert passage.waits[0].reason == "waits for w1, 1 iteration behind, and 1 more among the sampled w1 w2"
    assert passage.waits[0].waits_for == [1, 2]


def test_wait_names_who_is_furthest_behind_and_the_whole_sample() -> None:
    crowd = Crowd("pssp", 10, sample=4, staleness=1, seed=3)
    for rank in (*range(10), *(other for other in range(10) if other != 4)):
        crowd.finish(rank)
    reasons = []
    for rank in [r for r in crowd.going if r != 4]:
        for wait in crowd.finish(rank).waits.values():
            reasons.append(wait.reason)
    assert reasons
    for reason in reasons:
        assert reason.startswith("waits for w4, 2 iterations behind, among the sampled ")
        assert len(reason.rpartition("sampled ")[2].split()) == 4


def test_pssp_lets_a_worker_be_as_far_ahead_as_its_staleness_allows() -> None:
    crowd = Crowd("pssp", 2, sample=1, staleness=2)
    for _ in range(3):
        crowd.finish(0)
    assert crowd.going == [1]
    assert list(crowd.finish(1).releases) == [1, 0]


def test_waiting_worker_continues_when_the_one_it_waits_for_arrives() -> None:
    crowd = Crowd("pbsp", 2, sample=1)
    crowd.finish(0)
    assert waits(crowd) == {0: [1]}
    assert crowd.finish(1).releases.keys() == {0, 1}


def test_held_sample_stays_until_all_of_it_have_passed() -> None:
    crowd = Crowd("pbsp", 9, sample=3, resample="held")
    sampled = [int(name[1:]) for name in crowd.finish(0).waits[0].reason.rpartition("sampled ")[2].split()]
    for rank in sampled[:-1]:
        assert 0 not in crowd.finish(rank).releases
        assert waits(crowd)[0] == sampled[sampled.index(rank) + 1 :]
    assert 0 in crowd.finish(sampled[-1]).releases


def test_held_sample_is_never_looked_at_again_for_time() -> None:
    crowd = Crowd("pbsp", 9, sample=3, resample="held")
    crowd.finish(0)
    assert crowd.gate.recheck_at_ms(crowd.state) is None


def test_redrawn_sample_is_another_one_at_each_look() -> None:
    crowd = Crowd("pbsp", 40, sample=4)
    crowd.finish(0, busy_s=1.0)
    seen = {tuple(waits(crowd)[0])}
    for _ in range(5):
        crowd.recheck()
        seen.add(tuple(waits(crowd)[0]))
    assert len(seen) == 6


def test_a_wait_is_reported_once_for_any_number_of_samples() -> None:
    crowd = Crowd("pbsp", 40, sample=4)
    assert crowd.finish(0).waits.keys() == {0}
    for _ in range(3):
        assert crowd.recheck() == Passage(releases={}, waits={})
    for rank in range(1, 40):
        passage = crowd.finish(rank)
        assert 0 not in passage.waits
        if 0 in passage.releases:
            break
    tries = re.fullmatch(r"no worker in a sample of 4 is behind; before, (\d+) had some", passage.releases[0].reason)
    assert tries is not None
    assert int(tries[1]) >= 4


def test_waiting_worker_is_looked_at_again_after_a_part_of_its_iteration() -> None:
    crowd = Crowd("pbsp", 40, sample=4, recheck=0.25)
    crowd.finish(0, busy_s=8.0)
    due_ms = crowd.gate.recheck_at_ms(crowd.state)
    assert due_ms is not None
    assert crowd.at_ms + 2000 <= due_ms < crowd.at_ms + 2000 + 1024


def test_thousand_waiting_workers_are_looked_at_together() -> None:
    crowd = Crowd("pbsp", 1000, sample=4)
    for rank in range(500):
        crowd.finish(rank, busy_s=4.0)
    dues = {waiting.due_ms for waiting in crowd.state.waiting.values()}
    assert len(dues) <= 12


def test_sample_beyond_the_others_is_clamped_and_the_reason_reports_it() -> None:
    crowd = Crowd("pbsp", 3, sample=8)
    reason = crowd.finish(0).waits[0].reason
    assert reason.endswith("among the sampled w1 w2 (a sample of 8 was asked for, there are 2 others)")
    crowd.finish(1)
    passage = crowd.finish(2)
    assert passage.releases[2].reason == (
        "no worker in a sample of 2 is behind (a sample of 8 was asked for, there are 2 others)"
    )


def test_no_one_sampled_is_asp() -> None:
    crowd = Crowd("pbsp", 3, sample=0)
    for _ in range(20):
        assert crowd.finish(1).releases[1].reason == "no worker is sampled: it continues as it finishes"


def test_single_worker_never_waits() -> None:
    crowd = Crowd("pssp", 1)
    for _ in range(5):
        assert list(crowd.finish(0).releases) == [0]


def test_sample_does_not_depend_on_who_came_before() -> None:
    first, second = Crowd("pbsp", 30, seed=5), Crowd("pbsp", 30, seed=5)
    second.finish(9)
    sampled = [crowd.finish(3).waits[3].reason.partition("among")[2] for crowd in (first, second)]
    assert sampled[0] == sampled[1]


def test_other_seed_draws_other_samples() -> None:
    drawn = []
    for seed in (1, 2):
        crowd = Crowd("pbsp", 30, seed=seed)
        crowd.finish(0)
        drawn.append(waits(crowd)[0])
    assert drawn[0] != drawn[1]


def test_a_new_generation_keeps_times_and_releases_waiting_workers() -> None:
    crowd = Crowd("pbsp", 3, sample=2, strategy="grouped")
    crowd.finish(0, busy_s=3.0)
    crowd.finish(1, busy_s=1.0)
    del crowd.done[2], crowd.watermark[2]
    assert crowd.begin().releases.keys() == {0, 1}
    assert crowd.state.population.busy_s == {0: 3.0, 1: 1.0}


@pytest.mark.parametrize("name", ["pbsp", "pssp"])
def test_ten_thousand_workers_with_nearly_all_sampled_start_without_a_draw(name: str, monkeypatch) -> None:
    def drawn(*_: object) -> NoReturn:
        raise AssertionError("nobody is behind, and yet a sample was drawn")

    monkeypatch.setattr(psp, "sample", drawn)
    assert len(Crowd(name, 10_000, sample=9_990).going) == 10_000


def scanned(
    crowd: Crowd, rank: int, attempts: dict[int, int], staleness: int, count: int
) -> tuple[list[int], list[int]]:
    """The sample of a worker and those of it that are behind, by a scan of all workers and a key from its beginning."""
    others = [other for other in sorted(crowd.done) if other != rank]
    chance = key(key(crowd.seed, rank, crowd.done[rank] + 1, attempts[rank]), 1)
    sampled = [others[place] for place in draw(chance, len(others), count)]
    return sampled, [other for other in sampled if crowd.done[rank] - crowd.done[other] > staleness]


@pytest.mark.parametrize(("name", "staleness"), [("pbsp", 0), ("pssp", 2)])
@given(chance=st.randoms(use_true_random=False), workers=st.integers(6, 24), count=st.integers(1, 5))
def test_decisions_are_those_of_a_scan_of_all_workers_at_every_report(name, staleness, chance, workers, count) -> None:
    parameters = {"staleness": staleness} if staleness else {}
    crowd = Crowd(name, workers, sample=count, **parameters)
    waiting: dict[int, list[int]] = {}
    attempts: dict[int, int] = {}
    for _ in range(60):
        rank = chance.choice(crowd.going)
        granted = crowd.watermark[rank]
        before = dict(waiting)
        passage = crowd.finish(rank)
        looked_at = [rank] if granted <= crowd.done[rank] else []
        looked_at += [other for other in sorted(before) if rank in before[other]]
        released, held = [], {}
        for other in looked_at:
            attempts[other] = attempts[other] + 1 if other in before else 0
            sampled, behind = scanned(crowd, other, attempts, staleness, count)
            if not behind:
                waiting.pop(other, None)
                released.append(other)
                continue
            waiting[other] = behind
            if other not in before:
                held[other] = behind
                assert passage.waits[other].reason.partition(" among the sampled ")[2] == " ".join(
                    f"w{each}" for each in sampled
                )
        assert list(passage.releases) == released
        assert {other: wait.waits_for for other, wait in passage.waits.items()} == held
        assert waits(crowd) == waiting
