"""What is said reaches the other side at least once and in order, whatever happens to connections and to that side."""

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from controlplane.protocol.outbox import Outbox


class Word(msgspec.Struct, frozen=True):
    """A message; ``what`` tells it from others, whatever its number is."""

    number: int
    what: int


HELLO = 0


def hello(number: int) -> Word:
    return Word(number, HELLO)


@dataclass
class Engine:
    """The other side: it takes messages in order and each once, and forgets after a crash what was not durable."""

    words: list[Word] = field(default_factory=list)
    durable: int = 0
    incarnation: int = 0

    def take(self, word: Word) -> int | None:
        """The number that it waits for, where there is a gap before ``word``."""
        if word.number == len(self.words) + 1:
            self.words.append(word)
        return len(self.words) + 1 if word.number > len(self.words) else None

    def crash(self) -> None:
        del self.words[self.durable :]
        self.incarnation += 1


def taken(outbox: Outbox[Word]) -> Iterator[Word]:
    while (word := outbox.take()) is not None:
        yield word


class Conversations(RuleBasedStateMachine):
    """A process speaks to an engine; links break, the engine crashes, and answers are late, repeated or wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox: Outbox[Word] = Outbox()
        self.engine = Engine()
        self.said: list[Word] = []
        self.on_the_way: list[Word] = []
        self.sent: set[int] = set()
        self.forgotten: set[int] = set()

    @initialize()
    def speaks_first(self) -> None:
        self.say(hello)

    def say(self, build: Callable[[int], Word]) -> None:
        number = self.outbox.say(build)
        self.said.append(self.outbox.pending[-1])
        assert number == self.said[-1].number == len(self.said), "numbers rise by one, from 1 on"

    @rule()
    def says(self) -> None:
        self.say(partial(Word, what=len(self.said) + 1))

    @rule(count=st.integers(1, 5))
    def sends(self, count: int) -> None:
        for _ in range(count):
            if (word := self.outbox.take()) is not None:
                self.sent.add(word.number)
                self.on_the_way.append(word)

    @rule(count=st.integers(1, 5))
    def arrives(self, count: int) -> None:
        for word in self.on_the_way[:count]:
            if (missed := self.engine.take(word)) is not None:
                assert self.outbox.resend_from(missed, self.engine.incarnation) == 0, "what is durable is not lost"
        del self.on_the_way[:count]

    @rule()
    def connection_breaks(self) -> None:
        self.on_the_way.clear()
        self.outbox.reopen()
        self.said += [word for word in self.outbox.pending if word.number > len(self.said)]
        assert any(word.what == HELLO for word in self.outbox.pending), (
            "each connection has a hello that is not durable"
        )

    @rule(late=st.integers(0, 9))
    def becomes_durable(self, late: int) -> None:
        self.engine.durable = max(self.engine.durable, len(self.engine.words) - late)
        self.acknowledge(self.engine.durable)

    @rule(number=st.integers(0, 60))
    def an_old_answer_comes_again(self, number: int) -> None:
        self.acknowledge(min(number, self.engine.durable))

    def acknowledge(self, durable: int) -> None:
        before = {word.number for word in self.outbox.pending}
        self.outbox.acknowledge(durable)
        after = {word.number for word in self.outbox.pending}
        assert before - after == {number for number in before if number <= durable}, "exactly what is named"
        self.forgotten |= before - after

    @rule(number=st.integers(1, 60))
    def a_number_that_was_never_sent_is_called_durable(self, number: int) -> None:
        before = self.outbox.pending
        if not before or before[0].number not in self.sent:
            self.outbox.acknowledge(number)
            assert self.outbox.pending == before

    @rule()
    def engine_crashes(self) -> None:
        self.engine.crash()
        self.outbox.observe_incarnation(self.engine.incarnation)

    @rule(number=st.integers(0, 60))
    def resend_is_asked_for(self, number: int) -> None:
        self.outbox.resend(number)

    @invariant()
    def nothing_is_lost_or_made_up(self) -> None:
        assert self.forgotten <= self.sent, "nothing that was never sent is forgotten"
        assert self.outbox.pending == [word for word in self.said if word.number not in self.forgotten]
        assert self.engine.words == self.said[: len(self.engine.words)], "in the order in which it was said"
        assert self.outbox.unacknowledged == len(self.outbox.pending)

    def teardown(self) -> None:
        """A connection that lasts brings over all that was ever said."""
        if not self.said:
            return
        self.outbox.reopen()
        self.said += [word for word in self.outbox.pending if word.number > len(self.said)]
        for word in taken(self.outbox):
            assert self.engine.take(word) is None, "no gap on a new connection"
        assert self.engine.words == self.said
        self.outbox.acknowledge(len(self.said))
        assert (self.outbox.pending, self.outbox.all_sent) == ([], True)


TestConversations = Conversations.TestCase


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(0, 6)), max_size=12))
def test_an_agents_connections_begin_with_the_hello_and_bring_the_rest_at_least_once_in_order(
    connections: list[tuple[int, int, int]],
) -> None:
    """By content: an agent's messages have other numbers on each connection."""
    outbox: Outbox[Word] = Outbox(renumber=True)
    outbox.say(hello)
    said, delivered = 0, list[int]()
    for new, sent, durable in [*connections, (0, 10**6, 10**6)]:
        outbox.reopen()
        for _ in range(new):
            said += 1
            outbox.say(lambda number, what=said: Word(number, what))  # type: ignore[misc]
        words = [word for word in (outbox.take() for _ in range(min(sent, outbox.last))) if word is not None]
        assert [word.what == HELLO for word in words] == [at == 0 for at in range(len(words))]
        numbers = [word.number for word in words]
        assert numbers == list(range(numbers[0], numbers[0] + len(words))) if numbers else True
        delivered += [word.what for word in words if word.what and word.what not in delivered]
        for word in words[: min(durable, len(words))][-1:]:
            outbox.acknowledge(word.number)
    assert delivered == list(range(1, said + 1))
    assert outbox.pending == []


def test_only_a_newer_incarnation_receives_messages_that_are_not_durable_again() -> None:
    outbox: Outbox[Word] = Outbox()
    for build in (hello, hello, hello):
        outbox.say(build)
    list(taken(outbox))
    outbox.acknowledge(1)
    assert [outbox.observe_incarnation(incarnation) for incarnation in (3, 3, 2)] == [False, False, False]
    assert outbox.all_sent
    assert outbox.observe_incarnation(4)
    assert [word.number for word in taken(outbox)] == [2, 3]


@given(said=st.integers(1, 12), sent=st.integers(1, 12), durable=st.integers(1, 12), restored=st.integers(0, 12))
def test_after_a_restore_of_an_older_database_all_that_is_kept_arrives_in_order(
    said: int, sent: int, durable: int, restored: int
) -> None:
    outbox: Outbox[Word] = Outbox()
    for what in range(said):
        outbox.say(partial(Word, what=what) if what else hello)
    engine = Engine()
    for word in [word for word in (outbox.take() for _ in range(min(sent, said))) if word is not None]:
        engine.take(word)
    durable = min(durable, len(engine.words))
    outbox.acknowledge(durable)
    kept = [word.what for word in outbox.pending]
    before = [word.what for word in engine.words[: min(restored, durable)]]
    del engine.words[len(before) :]
    engine.incarnation = 1000
    outbox.reopen()
    lost = 0
    for _ in range(2):
        for word in taken(outbox):
            if (missed := engine.take(word)) is not None:
                lost += outbox.resend_from(missed, engine.incarnation)
    assert lost == durable - len(before)
    assert [word.what for word in engine.words] == [*before, *kept, HELLO]
    assert [word.number for word in engine.words] == list(range(1, len(engine.words) + 1))


@pytest.mark.parametrize(("durable_here", "incarnation"), [(True, 1), (False, 0)])
def test_a_late_refusal_of_what_is_durable_by_now_loses_nothing(durable_here: bool, incarnation: int) -> None:
    outbox: Outbox[Word] = Outbox()
    for what in range(4):
        outbox.say(partial(Word, what=what))
    list(taken(outbox))
    outbox.acknowledge(3)
    if not durable_here:
        outbox.reopen()
    before = [word.number for word in outbox.pending]
    assert outbox.resend_from(2, incarnation) == 0
    assert [word.number for word in outbox.pending] == before


@pytest.mark.parametrize("renumber", [False, True])
def test_how_a_message_is_made_is_kept_only_where_it_is_made_again(renumber: bool) -> None:
    """Thousands of reports are kept in an outage: with the fields that they were made of they take twice the memory."""
    box: Outbox[Word] = Outbox(renumber=renumber)

    class Build:
        def __call__(self, number: int) -> Word:
            return Word(number, HELLO)

    builds = [Build() for _ in range(3)]
    alive = [weakref.ref(build) for build in builds]
    for build in builds:
        box.say(build)
    del build
    builds.clear()
    assert [each() is not None for each in alive] == [True, renumber, renumber]
