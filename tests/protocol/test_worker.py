"""The worker's machine: what it may do by the orders it has heard, whatever is lost, late, repeated or out of order."""

from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.protocol.messages import Computed, ProgressReport, Quiesced, WorkerFinished
from controlplane.protocol.orders import Orders
from controlplane.protocol.worker import Due, Phase, Step, UnexpectedStep, WorkerMachine
from tests.protocol.orders import orders


@dataclass
class Driver:
    """Does at once whatever the machine says comes next, and keeps a record."""

    said: list[Due] = field(default_factory=list)
    started: list[int] = field(default_factory=list)
    reported: list[tuple[int, int]] = field(default_factory=list)
    """Iteration and share."""
    now_s: float = 0.0

    def __post_init__(self) -> None:
        self.worker = WorkerMachine(lambda build: self.said.append(build(len(self.said) + 1)))

    def receive(self, *all_orders: Orders) -> "Driver":
        for each in all_orders:
            self.worker.receive(each)
        return self

    def step(self) -> Step:
        """One step, done."""
        worker = self.worker
        step = worker.next(self.now_s)
        if step is Step.PULL:
            self.started.append(worker.iteration)
            worker.pulled(self.now_s)
        elif step is Step.COMPUTE:
            assert worker.task is not None
            worker.computed(worker.task.share)
        elif step is Step.PUSH:
            assert worker.task is not None
            self.reported.append((worker.iteration, worker.task.share))
            worker.pushed()
        elif step is Step.FINISH:
            worker.finished(model_saved=False)
        return step

    def run(self) -> "Driver":
        """Until it waits."""
        while self.step() is not Step.WAIT:
            pass
        return self


def test_an_iteration_is_pulled_computed_and_pushed_up_to_the_grant() -> None:
    driver = Driver().receive(orders(watermark=1, share_from=0)).run()
    assert (driver.started, driver.reported, driver.said) == ([0, 1], [(0, 4), (1, 4)], [])
    assert (driver.worker.phase, driver.worker.iteration) == (Phase.BOUNDARY, 2)


def test_a_worker_that_joins_begins_where_its_first_orders_define() -> None:
    assert Driver().receive(orders(watermark=9, share_from=8)).run().started == [8, 9]


def test_a_share_is_awaited_for_so_long_and_then_the_last_one_holds() -> None:
    driver = Driver().receive(orders(watermark=5, share_until=0, decision_timeout_s=2.0)).run()
    assert (driver.worker.phase, driver.worker.wake_at_s, driver.reported) == (Phase.SHARE, 2.0, [(0, 4)])
    driver.now_s = 1.99
    assert driver.step() is Step.WAIT
    driver.now_s = 2.0
    assert driver.step() is Step.COMPUTE
    driver.run().receive(orders(sequence=1, watermark=5, share=7, share_from=2, share_until=2)).run()
    assert driver.reported == [(0, 4), (1, 4), (2, 7)]


def test_a_worker_on_hold_reports_it_once_for_each_orders_and_continues_without() -> None:
    driver = Driver().receive(orders(watermark=5, hold=True, sequence=3)).run().run()
    assert driver.said == [Quiesced(number=1, generation=1, iteration=0, sequence=3)]
    driver.receive(orders(watermark=5, hold=True, sequence=4)).run()
    assert [said.sequence for said in driver.said if isinstance(said, Quiesced)] == [3, 4]
    assert driver.receive(orders(watermark=0, sequence=5)).run().started == [0]


def test_a_worker_that_cannot_pause_here_continues_to_the_next_boundary() -> None:
    driver = Driver().receive(orders(watermark=1, hold=True))
    driver.worker.can_hold = False
    assert driver.run().started == [0, 1]
    assert driver.said == []


def test_the_end_comes_before_holding_and_before_a_share_that_is_awaited() -> None:
    driver = Driver().receive(orders(watermark=5, share_until=0)).run()
    driver.receive(orders(sequence=1, watermark=5, hold=True, stop_at=1, share_until=0)).run()
    assert driver.said == [WorkerFinished(number=1, iteration=1, model_saved=False)]
    assert driver.receive(orders(sequence=2, watermark=9, skip_to=8)).run().started == [0, 1]


def test_an_iteration_that_does_not_count_is_abandoned_in_any_phase() -> None:
    for steps in range(4):
        driver = Driver().receive(orders(watermark=0, share_until=0 if steps == 1 else 9))
        worker = driver.worker
        for step in (worker.next(0.0) for _ in range(steps)):
            if step is Step.PULL:
                worker.pulled(0.0)
            elif step is Step.COMPUTE:
                worker.computed(4)
        driver.receive(orders(sequence=1, watermark=6, skip_to=5))
        assert (worker.phase, worker.iteration, worker.attempt) == (Phase.BOUNDARY, 5, 1)
        assert driver.run().reported == [(5, 4), (6, 4)]


def test_a_refused_update_is_pushed_again_under_newer_orders_alone() -> None:
    worker = Driver().receive(orders(watermark=0)).worker
    worker.next(0.0)
    worker.pulled(0.0)
    worker.next(0.0)
    worker.computed(4)
    assert (worker.next(0.0), worker.term) == (Step.PUSH, (0, 1))
    worker.refused()
    worker.receive(orders(sequence=1, watermark=0))
    assert worker.next(0.0) is Step.WAIT
    worker.receive(orders(generation=2, watermark=0))
    assert (worker.next(0.0), worker.term) == (Step.PUSH, (0, 2))
    worker.again()
    assert worker.next(0.0) is Step.PUSH
    worker.missed()
    assert (worker.phase, worker.iteration) == (Phase.BOUNDARY, 1)


def test_a_refused_pull_is_made_again_under_newer_orders_alone() -> None:
    worker = Driver().receive(orders(watermark=0)).worker
    assert (worker.next(0.0), worker.term) == (Step.PULL, (0, 1))
    worker.refused()
    assert worker.next(0.0) is Step.WAIT
    worker.receive(orders(generation=2, watermark=0))
    assert (worker.next(0.0), worker.term, worker.next(0.0)) == (Step.PULL, (0, 2), Step.WAIT)
    worker.again()
    assert worker.next(0.0) is Step.PULL
    worker.pulled(0.0)
    assert worker.next(0.0) is Step.COMPUTE


def test_progress_cuts_and_announcements_are_those_of_the_newest_orders() -> None:
    driver = Driver().receive(orders(watermark=0))
    worker = driver.worker
    worker.next(0.0)
    worker.pulled(0.0)
    worker.next(0.0)
    worker.progressed(1)
    assert (worker.is_cut, worker.progress_s, driver.said) == (False, None, [])
    worker.receive(orders(sequence=1, watermark=0, cut=0, progress_s=0.5, announce=True))
    assert (worker.is_cut, worker.progress_s) == (True, 0.5)
    worker.progressed(2)
    worker.computed(3)
    assert driver.said == [
        ProgressReport(number=1, generation=1, iteration=0, samples_done=2),
        Computed(number=2, generation=1, iteration=0, samples=3),
    ]


@pytest.mark.parametrize("tell", ["pulled", "progressed", "computed", "pushed", "again", "refused", "finished"])
def test_what_was_not_requested_is_refused_and_changes_nothing(tell: str) -> None:
    arguments: dict[str, Any] = {"pulled": {"now_s": 0.0}, "finished": {"model_saved": True}}
    counted = {"samples": 1} if tell in ("progressed", "computed") else {}
    driver = Driver().receive(orders(watermark=3, share_from=3))
    before = picture(driver.worker)
    with pytest.raises(UnexpectedStep, match=r"iteration 3: .* BOUNDARY"):
        getattr(driver.worker, tell)(**arguments.get(tell, counted))
    assert picture(driver.worker) == before


def picture(worker: WorkerMachine) -> tuple[Any, ...]:
    return worker.phase, worker.iteration, worker.attempt, worker.task, worker.term, worker.orders, worker.wake_at_s


# -- laws


def published(changes: list[dict[str, Any]]) -> list[Orders]:
    """What a control plane publishes: newer than before each time, and grants and skips never fall."""
    watermarks = accumulate(change["granted"] for change in changes)
    skips = list(accumulate((change["skip"] for change in changes), max))
    generations = accumulate((change["renewed"] for change in changes), initial=1)
    return [
        orders(
            generation=generation,
            sequence=at,
            watermark=watermark - 1,
            skip_to=min(skip, watermark),
            share=change["share"],
            share_from=min(skip, watermark),
            hold=change["hold"],
            announce=change["announce"],
        )
        for at, (change, watermark, skip, generation) in enumerate(
            zip(changes, watermarks, skips, generations, strict=False)
        )
    ]


change = st.fixed_dictionaries(
    {
        "granted": st.integers(0, 3),
        "skip": st.integers(0, 12),
        "renewed": st.booleans(),
        "share": st.integers(0, 8),
        "hold": st.booleans(),
        "announce": st.booleans(),
    }
)
histories = st.lists(change, min_size=1, max_size=12).map(published)


@given(histories, st.data())
def test_nothing_is_started_twice_or_beyond_the_grant_however_orders_arrive(
    history: list[Orders], data: st.DataObject
) -> None:
    driver, newest = Driver(), -1
    arrivals = data.draw(st.lists(st.integers(0, len(history) - 1), max_size=30), label="arrivals")
    for at in arrivals:
        before = picture(driver.worker)
        driver.worker.receive(history[at])
        if at <= newest:
            assert picture(driver.worker) == before, "what is older, or was heard before, changes nothing"
        newest = max(newest, at)
        for _ in range(data.draw(st.integers(0, 8), label="steps")):
            driver.step()
        granted = max((history[heard].watermark for heard in arrivals), default=-1)
        assert all(iteration <= granted for iteration in driver.started)
    assert driver.started == sorted(set(driver.started))
    assert {iteration for iteration, _ in driver.reported} <= set(driver.started)
    held = [said.sequence for said in driver.said if isinstance(said, Quiesced)]
    assert held == sorted(set(held))


@given(histories, st.data())
def test_orders_that_were_lost_are_missed_by_no_one_once_newer_ones_came(
    history: list[Orders], data: st.DataObject
) -> None:
    """At a boundary, the newest orders alone say what comes next."""
    some = data.draw(st.lists(st.sampled_from(history), max_size=10), label="arrived before")
    driver = Driver().receive(*some)
    first = driver.worker.orders
    driver.receive(history[-1])
    alone = Driver().receive(history[-1])
    if first is not None and driver.worker.iteration < alone.worker.iteration:
        # It was told to begin earlier, and owes what was not skipped since.
        assert driver.worker.iteration >= first.share_from
        alone.worker.iteration = driver.worker.iteration
    assert driver.run().started == alone.run().started
    assert picture(driver.worker)[:2] == picture(alone.worker)[:2]
    assert [msgspec.structs.replace(said, number=0) for said in driver.said] == [
        msgspec.structs.replace(said, number=0) for said in alone.said
    ]


@given(histories, st.integers(0, 30))
def test_each_step_is_given_once(history: list[Orders], steps: int) -> None:
    driver = Driver().receive(*history)
    for _ in range(steps):
        driver.step()
    driver.worker.next(driver.now_s)
    assert driver.worker.next(driver.now_s) is Step.WAIT
