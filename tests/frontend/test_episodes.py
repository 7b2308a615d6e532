"""Changes of shares as episodes: what they led to together."""

import itertools

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from frontend.figures.episodes import APART, Change, fold, last_that_mattered
from tests.frontend import factories
from tests.frontend.test_pages import text_of

EVEN = {0: 64, 1: 64, 2: 64, 3: 64}
BALANCED = {0: 93, 1: 93, 2: 47, 3: 23}


def change(sequence, iteration, shares, generation=1):
    fields = {"incarnation": 0, "sequence": sequence, "generation": generation}
    return Change(**fields, iteration=iteration, shares=shares, reason="as measured")


def length(first, last):
    """274 ms before iteration 6, 107 ms from there on."""
    return (0.274 if last <= 6 else 0.107) if last > first else None


def test_changes_that_follow_one_another_are_one_episode_with_its_effect():
    told = [change(1, 0, EVEN), change(2, 3, {**EVEN, 0: 80, 3: 48}), change(3, 6, BALANCED)]
    (episode,) = fold(told, length)
    assert (episode.rank, episode.was, episode.now) == (3, 64, 23)
    assert (episode.before_s, episode.after_s) == (0.274, 0.107)
    assert episode.times == pytest.approx(2.56, abs=0.01)
    assert [each.sequence for each in episode.changes] == [2, 3]


def test_small_changes_later_do_not_hide_the_one_that_mattered():
    nudged = BALANCED | {0: 92, 1: 94}
    told = [change(1, 0, EVEN), change(2, 6, BALANCED), change(3, 100, nudged), change(4, 200, BALANCED)]
    episodes = fold(told, length)
    assert [episode.matters for episode in episodes] == [False, False, True]
    assert last_that_mattered(episodes).last.sequence == 2


def test_first_shares_alone_are_no_episode():
    assert fold([change(1, 0, EVEN)], length) == []


def test_other_workers_begin_another_episode():
    told = [change(1, 0, EVEN), change(2, 6, BALANCED), change(3, 8, {0: 128, 1: 128}, generation=2)]
    assert len(fold(told, length)) == 1


@given(gaps=st.lists(st.integers(1, 60), min_size=1, max_size=30))
def test_every_change_is_in_one_episode(gaps):
    at, told = 0, [change(0, 0, {0: 10, 1: 10})]
    for number, gap in enumerate(gaps, start=1):
        at += gap
        told.append(change(number, at, {0: 10 + number, 1: 10}))
    episodes = fold(told, length)
    assert [each for episode in reversed(episodes) for each in episode.changes] == told[1:]
    for episode in episodes:
        numbers = [each.iteration for each in episode.changes]
        assert all(later - earlier <= APART for earlier, later in itertools.pairwise(numbers))


@pytest.mark.django_db
def test_key_decisions_and_the_overview_tell_the_change_that_mattered(viewer: Client) -> None:
    job = factories.make_job()
    even, balanced = factories.Pace(shares=factories.EVEN), factories.Pace(shares=factories.BALANCED)
    factories.make_reports(job, [even] * 20 + [balanced] * 20)
    for sequence, iteration, shares in ((1, 0, factories.EVEN), (2, 20, factories.BALANCED)):
        payload = {"shares": {str(rank): share for rank, share in enumerate(shares)}, "generation": 1}
        factories.make_decision(job, sequence, "set-shares", payload, iteration=iteration)
    key = text_of(viewer, f"/jobs/{job.pk}/?tab=decisions")
    assert "w3: 64 → 23" in key
    overview = text_of(viewer, f"/jobs/{job.pk}/")
    assert "Last significant change : w3: 64 → 23, iterations 264 ms → 102 ms" in overview
