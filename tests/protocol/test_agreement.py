"""How ranks agree: whoever hears what, and when, all take the same samples, stop and stand at the same boundary."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controlplane.protocol.agreement import Agreement, Change, Row, Settled, Timeline
from controlplane.protocol.dividing import Pass, Span, divide, spans
from controlplane.protocol.orders import Orders
from tests.protocol.orders import orders


@dataclass
class Rank:
    """A rank's loader, which draws up to ``ahead`` iterations before they begin."""

    index: int
    ahead: int
    agreement: Agreement
    drawn: dict[int, Span] = field(default_factory=dict)
    heard: tuple[int, int, int] = (-1, -1, -1)

    def draw(self, each: Pass, iteration: int) -> None:
        last = min(iteration + self.ahead, each.first + each.iterations - 1)
        for k in range(iteration, last + 1):
            if k not in self.drawn:
                span = each.span(k)
                shares = divide(self.agreement.timeline.shares(k), span.size)
                self.drawn[k] = spans(span, shares)[self.index]

    def receive(self, given: Orders) -> None:
        if given.rank_in_time > self.heard:
            self.heard = given.rank_in_time
            self.agreement.receive(given)


@dataclass
class Ranks:
    """All ranks of a job, and what they took."""

    aheads: list[int]
    timeline: list[int]
    first: int = 0
    multiple: int = 1

    def __post_init__(self) -> None:
        self.each = [
            Rank(index, ahead, Agreement(index, Timeline(self.timeline, first=self.first), multiple=self.multiple))
            for index, ahead in enumerate(self.aheads)
        ]

    def iterate(self, each: Pass, iteration: int, **row: Any) -> Settled:
        """All draw, and add up their words; what they then know, which is the same for all."""
        for rank in self.each:
            rank.draw(each, iteration)
        vectors = [rank.agreement.encode(Row(promised=max(rank.drawn), **row)) for rank in self.each]
        total = [sum(column) for column in zip(*vectors, strict=True)]
        first, *others = [rank.agreement.read(total, iteration) for rank in self.each]
        assert all(other == first for other in others)
        assert len({rank.agreement.leader for rank in self.each}) == 1
        return first


NEWS = st.tuples(st.integers(0, 25), st.integers(0, 31), st.lists(st.integers(1, 40), min_size=5, max_size=5))
"""Before which iteration, which ranks hear it (as bits), and the weights of the shares."""


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=5),
    st.lists(NEWS, max_size=12),
    st.integers(1, 300),
    st.integers(1, 20),
    st.integers(0, 25),
    st.sampled_from([1, 2, 4]),
)
def test_each_sample_is_taken_once_a_pass_with_any_orders_and_after_a_restart(
    aheads: list[int], news: list[tuple[int, int, list[int]]], samples: int, mean: int, restart: int, multiple: int
) -> None:
    world = len(aheads)
    batch = world * mean * multiple
    ranks = Ranks(aheads, [mean * multiple] * world, multiple=multiple)
    taken: Counter[tuple[int, int]] = Counter()
    iteration = 0
    for number in range(2):
        each = Pass(number=number, first=iteration, samples=samples, batch=batch)
        for rank in ranks.each:
            rank.drawn.clear()
        for k in range(each.first, each.first + each.iterations):
            if k == restart:
                # What was drawn ahead is forgotten with the processes; the pass goes on where its last iteration ended.
                ranks = Ranks(aheads, ranks.each[0].agreement.timeline.shares(k), first=k, multiple=multiple)
                each = Pass(number=number, first=k, samples=samples, batch=batch, begin=each.span(k).start)
            for place, (when, who, weights) in enumerate(news):
                if when == k:
                    shares = divide(weights[:world], batch, multiple)
                    given_orders = orders(sequence=place, shares=shares, shares_version=place + 1)
                    for rank in ranks.each:
                        if who >> rank.index & 1:
                            rank.receive(given_orders)
            ranks.iterate(each, k)
            for rank in ranks.each:
                start, size = rank.drawn[k]
                taken.update((number, position) for position in range(start, start + size))
                if each.span(k).size == batch:
                    assert size % multiple == 0
        iteration = each.first + each.iterations
    assert taken == {(number, position): 1 for number in range(2) for position in range(samples)}


FOREVER = Pass(number=0, first=0, samples=10**6, batch=16)


def test_new_shares_hold_behind_what_any_loader_has_drawn() -> None:
    ranks = Ranks([0, 3], [8, 8])
    ranks.each[0].receive(orders(shares=[12, 4], shares_version=1))
    settled = ranks.iterate(FOREVER, 0)
    assert settled.change == Change(4, 1, [12, 4])
    assert [ranks.each[1].agreement.timeline.shares(k) for k in (3, 4)] == [[8, 8], [12, 4]]


def test_one_connected_rank_is_enough() -> None:
    ranks = Ranks([0, 0, 0], [8, 8, 8])
    ranks.each[2].receive(orders(shares=[4, 4, 16], shares_version=1))
    settled = [ranks.iterate(Pass(number=0, first=0, samples=999, batch=24), k) for k in range(3)]
    assert [each.change for each in settled] == [None, Change(2, 1, [4, 4, 16]), None]


def test_a_pause_and_its_end_are_those_of_the_newest_orders() -> None:
    ranks = Ranks([0, 0], [8, 8])
    ranks.each[1].receive(orders(sequence=3))
    ranks.iterate(FOREVER, 0)
    ranks.each[1].receive(orders(sequence=4, hold=True))
    assert ranks.iterate(FOREVER, 1).hold
    ranks.each[0].receive(orders(sequence=5))
    assert [ranks.iterate(FOREVER, 1).hold, ranks.iterate(FOREVER, 1).hold] == [True, False]


@given(st.integers(0, 9), st.integers(0, 9))
def test_all_stop_at_the_first_boundary_that_all_reach(stop_at: int, heard_at: int) -> None:
    ranks = Ranks([0, 2], [8, 8])
    for k in range(12):
        if k == heard_at:
            ranks.each[0].receive(orders(stop_at=stop_at))
        if ranks.iterate(FOREVER, k).stop:
            assert k + 1 == max(stop_at, heard_at + 1)
            return
    raise AssertionError("nobody stopped")


def test_a_ceiling_takes_effect_without_a_word_of_the_control_plane() -> None:
    ranks = Ranks([0, 0], [8, 8])
    vectors = [rank.agreement.encode(Row(promised=0, ceiling=6 * rank.index)) for rank in ranks.each]
    settled = ranks.each[0].agreement.read([a + b for a, b in zip(*vectors, strict=True)], 0)
    assert settled.change == Change(1, 0, [10, 6])


def test_shares_of_another_batch_size_or_world_are_refused_with_a_sentence() -> None:
    ranks = Ranks([0, 0], [8, 8])
    for shares, sentence in (([8, 8, 8], "for 3 ranks were ordered, there are 2"), ([9, 9], "of 18 samples")):
        ranks.each[0].agreement.receive(orders(shares=shares, shares_version=1))
        assert sentence in ranks.each[0].agreement.refusal
        assert ranks.iterate(FOREVER, 0).change is None


def test_where_one_rank_cannot_continue_with_uneven_shares_they_stay() -> None:
    ranks = Ranks([0, 0], [8, 8])
    ranks.each[0].receive(orders(shares=[12, 4], shares_version=1))
    assert ranks.iterate(FOREVER, 0, gives_up=1).change is None
    assert ranks.iterate(FOREVER, 1).change is None


def test_one_rank_that_leaves_is_enough_and_a_stop_comes_first() -> None:
    ranks = Ranks([0, 0], [8, 8])
    words = [ranks.each[0].agreement.encode(Row()), ranks.each[1].agreement.encode(Row(leaves=1))]
    total = [sum(column) for column in zip(*words, strict=True)]
    assert all(rank.agreement.read(total, 0)[1:4] == (False, False, True) for rank in ranks.each)
    ranks.each[0].agreement.receive(orders(stop_at=1))
    settled = ranks.iterate(FOREVER, 0, leaves=1)
    assert (settled.stop, settled.leaves) == (True, False)


def test_no_number_is_lost_on_the_way() -> None:
    row = Row(promised=2**31 - 1, coming=7, ceiling=9, timed=3, sum_s=1e-7, link_s=0.25)
    agreement = Agreement(0, Timeline([12]))
    agreement.receive(orders(incarnation=3, generation=2, sequence=2**50, shares=[12], shares_version=5))
    settled = agreement.read(agreement.encode(row), 4)
    assert Row(*[column[0] for column in settled.columns]) == row._replace(incarnation=3, generation=2, sequence=2**50)
