"""Iterations on their way to a tracker: training never waits, what is lost is counted, and the end has a limit."""

import logging
import threading
from collections.abc import Sequence

import pytest

from paceline.forwarding import MOST_AT_ONCE, Forwarding, Point
from paceline.reporting import Iteration
from tests.support.waiting import eventually


class Tracker:
    """Blocks in each call until it is let go."""

    def __init__(self, *, failures: int = 0, opens: bool = True) -> None:
        self.failures, self.opens = failures, opens
        self.go, self.entered = threading.Event(), threading.Event()
        self.calls: list[list[int]] = []
        self.threads: set[threading.Thread] = set()
        self.closed = False

    def open(self) -> None:
        self._block()
        if not self.opens:
            raise OSError("no server")

    def send(self, points: Sequence[Point]) -> None:
        self._block()
        self.calls.append([iteration.number for iteration, _ in points])
        if len(self.calls) <= self.failures:
            raise OSError("no answer")

    def close(self) -> None:
        self._block()
        self.closed = True

    def _block(self) -> None:
        self.threads.add(threading.current_thread())
        self.entered.set()
        assert self.go.wait(60)


def iteration(number: int) -> Iteration:
    return Iteration(
        number=number,
        samples=8,
        shares=(8,),
        loss=0.5,
        data_s=0.0,
        compute_s=0.1,
        communication_s=0.0,
        waiting_s=0.0,
        outside_s=0.0,
        logged={},
    )


def give(forwarding: Forwarding, count: int) -> None:
    for number in range(count):
        forwarding(iteration(number))


@pytest.fixture(autouse=True)
def sentences(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    logging.getLogger("paceline").propagate = True
    caplog.set_level(logging.INFO, logger="paceline")
    return caplog


def test_iterations_wait_for_a_tracker_that_blocks_and_go_together(sentences: pytest.LogCaptureFixture) -> None:
    tracker = Tracker()
    forwarding = Forwarding("runs", tracker)
    give(forwarding, MOST_AT_ONCE + 3)
    assert tracker.calls == []
    tracker.go.set()
    forwarding.end()
    forwarding.wait(60)
    assert tracker.calls == [[*range(MOST_AT_ONCE)], [*range(MOST_AT_ONCE, MOST_AT_ONCE + 3)]]
    assert tracker.closed
    assert [thread.name for thread in tracker.threads] == ["paceline-tracker"]
    assert sentences.text == ""


def test_a_full_queue_drops_iterations_says_so_once_and_counts_them(sentences: pytest.LogCaptureFixture) -> None:
    tracker = Tracker()
    forwarding = Forwarding("runs", tracker, most_kept=4)
    give(forwarding, 9)
    tracker.go.set()
    forwarding.end()
    forwarding.wait(60)
    assert tracker.calls == [[0, 1, 2, 3]]
    assert sentences.text.count("runs does not keep up: 4 iterations wait, and further ones are not forwarded") == 1
    assert sentences.text.count("5 iterations were not forwarded to runs") == 1


def test_the_end_waits_no_longer_than_it_may_and_counts_what_is_being_sent(sentences: pytest.LogCaptureFixture) -> None:
    tracker = Tracker()
    tracker.go.set()
    forwarding = Forwarding("runs", tracker)
    eventually(lambda: tracker.entered.is_set() and not tracker.closed, what="an open tracker")
    tracker.go.clear()
    give(forwarding, 7)
    forwarding.end()
    forwarding.wait(0.1)
    tracker.go.set()
    assert sentences.text.count("7 iterations were not forwarded to runs") == 1


def test_a_call_that_fails_loses_its_iterations_and_not_the_next_ones(sentences: pytest.LogCaptureFixture) -> None:
    tracker = Tracker(failures=2)
    forwarding = Forwarding("runs", tracker)
    give(forwarding, 2 * MOST_AT_ONCE + 3)
    tracker.go.set()
    forwarding.end()
    forwarding.wait(60)
    assert [len(call) for call in tracker.calls] == [MOST_AT_ONCE, MOST_AT_ONCE, 3]
    assert tracker.closed
    assert sentences.text.count("iterations were not forwarded to runs: no answer") == 1
    assert sentences.text.count("200 iterations were not forwarded to runs") == 1


def test_nothing_is_kept_for_a_tracker_that_could_not_be_opened(sentences: pytest.LogCaptureFixture) -> None:
    tracker = Tracker(opens=False)
    forwarding = Forwarding("runs", tracker)
    give(forwarding, 3)
    tracker.go.set()
    eventually(lambda: "nothing is forwarded to runs: no server" in sentences.text, what="the sentence")
    give(forwarding, 3)
    forwarding.end()
    forwarding.wait(60)
    assert tracker.calls == []
    assert "were not forwarded" not in sentences.text
