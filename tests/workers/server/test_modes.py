"""What a block does with contributions beyond the plain quorum: on arrival, held until passed, or named."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from controlplane.protocol.spec import Optimizer
from workers.server.block import Block
from workers.server.contribution import Contribution
from workers.server.quorum import Roster, Verdict
from workers.transport.handshake import Peer
from workers.workloads.rules import GradientRule

A, B, C = Peer(0, "a"), Peer(1, "b"), Peer(2, "c")
LOCKSTEP = Roster(incarnation=0, generation=1, members={A: 0, B: 0, C: 0})
ARRIVAL = replace(LOCKSTEP, apply="arrival", scale=0.5)
RELEASE = replace(LOCKSTEP, apply="release", scale=0.5)
BACKUP = replace(LOCKSTEP, named_from=0)


class Running:
    """A block that begins at 100; a mean gradient of g takes g from it."""

    def __init__(self, roster: Roster) -> None:
        self.missing: list[tuple[int, int]] = []
        self.late: list[tuple[int, int]] = []
        values = np.array([100.0], dtype=np.float32)
        self.block = Block(
            values,
            lambda tensor, _: GradientRule(tensor, Optimizer(lr=1.0)),
            lambda *who: self.missing.append(who),
            lambda *who: self.late.append(who),
        )
        self.roster = roster
        self.block.appoint(roster)

    def change(self, **changes: Any) -> None:
        self.roster = replace(self.roster, **changes)
        self.block.appoint(self.roster)

    def push(self, peer: Peer, total: float, iteration: int = 0, *, samples: int = 1) -> Verdict:
        memory = np.array([total], dtype=np.float32).data.cast("B")
        given = Contribution(term=self.roster.term, peer=peer, iteration=iteration, samples=samples, total=memory)
        return self.block.contribute(given)[0]

    @property
    def value(self) -> float:
        snapshot, _, _ = self.block.borrow(0)
        self.block.give_back(snapshot)
        return float(snapshot.values[0])


def test_so_many_updates_as_are_to_be_gathered_make_one_step_along_their_mean() -> None:
    running = Running(replace(ARRIVAL, scale=1.0, gather=3))
    assert [running.push(A, 4.0, samples=2), running.value] == [Verdict.COUNT, 100.0]
    assert [running.push(B, 8.0, samples=1), running.value] == [Verdict.COUNT, 100.0]
    assert [running.push(A, 6.0, 1), running.value] == [Verdict.COUNT, 95.5]
    assert running.block.steps == 1


def test_what_was_gathered_is_a_part_of_a_step_when_no_more_are_to_come() -> None:
    running = Running(replace(ARRIVAL, scale=1.0, gather=4))
    running.push(A, 8.0, samples=2)
    running.change(scale=0.25, gather=1)
    assert running.value == 99.0
    running.change(scale=1.0, gather=4)
    running.push(B, 8.0, samples=2)
    running.change(apply="quorum", apply_from=5)
    assert running.value == 98.0


def test_what_was_gathered_is_in_a_copy_and_continues_elsewhere() -> None:
    running = Running(replace(ARRIVAL, scale=1.0, gather=2))
    running.push(A, 8.0, samples=2)
    running.block.freeze(0)
    moved = running.block.await_frozen()
    assert moved is not None
    assert (moved.open.growing.count, moved.open.growing.samples) == (1, 2)
    running.block.thaw()
    running.block.flush()
    assert running.block.copy()["values"].tolist() == [98.0]


def test_fewer_workers_make_the_step_that_more_were_awaited_for() -> None:
    running = Running(replace(ARRIVAL, scale=1.0, gather=3))
    running.push(A, 4.0)
    running.push(B, 8.0)
    running.change(gather=2, members={A: 0, B: 0})
    assert running.value == 94.0


def test_on_arrival_each_update_makes_its_part_of_a_step_at_once() -> None:
    running = Running(ARRIVAL)
    assert [running.push(A, 4.0, samples=2), running.value] == [Verdict.COUNT, 99.0]
    assert [running.push(A, 6.0, 1), running.value] == [Verdict.COUNT, 96.0]
    assert [running.push(A, 6.0, 1), running.value] == [Verdict.REPEATED, 96.0]
    assert running.block.steps == 2


def test_on_arrival_a_pull_takes_what_there_is() -> None:
    running = Running(ARRIVAL)
    running.push(A, 4.0)
    _, version, held_s = running.block.borrow(70, running.roster.term)
    assert (version, held_s) == (70, 0.0)


def test_a_pull_waits_for_the_orders_that_it_was_made_under() -> None:
    running = Running(RELEASE)
    running.push(A, 2.0)
    assert running.value == 100.0
    running.change(generation=2, apply="quorum", apply_from=1)
    _, version, _ = running.block.borrow(1, (0, 2))
    assert (version, running.value) == (1, 99.0)


def test_held_updates_are_applied_as_one_sum_when_their_workers_pass() -> None:
    running = Running(RELEASE)
    for peer, total in ((A, 2.0), (B, 4.0), (C, 8.0)):
        assert running.push(peer, total) is Verdict.COUNT
    assert (running.value, running.block.steps) == (100.0, 0)
    running.change(passed={0: 0, 1: 0})
    assert (running.value, running.block.steps) == (97.0, 1)
    running.change(passed={0: 0, 1: 0, 2: 0})
    assert (running.value, running.block.steps) == (93.0, 2)


def test_the_held_update_of_one_that_left_stays() -> None:
    running = Running(RELEASE)
    running.push(C, 8.0)
    running.change(generation=2, members={A: 0, B: 0})
    assert running.value == 96.0


def test_an_iteration_waits_until_its_makers_are_named_and_takes_exactly_them() -> None:
    running = Running(BACKUP)
    for peer, total in ((C, 9.0), (B, 1.0), (A, 3.0)):
        running.push(peer, total)
    assert (running.block.version, running.value) == (0, 100.0)
    running.change(quorums={0: frozenset({0, 1})})
    assert (running.block.version, running.value, running.late) == (1, 98.0, [(0, 2)])
    assert running.missing == []


def test_a_late_update_is_dropped_and_reported() -> None:
    running = Running(BACKUP)
    running.change(quorums={0: frozenset({0, 1})})
    assert [running.push(peer, 2.0) for peer in (A, C, B, C)] == [
        Verdict.COUNT,
        Verdict.LATE,
        Verdict.COUNT,
        Verdict.LATE,
    ]
    assert (running.block.version, running.value) == (1, 98.0)
    assert set(running.late) == {(0, 2)}


def test_if_a_named_worker_leaves_the_iteration_closes_without_it() -> None:
    running = Running(BACKUP)
    running.push(A, 3.0)
    running.change(quorums={0: frozenset({0, 1})})
    running.change(generation=2, members={A: 0, C: 0})
    assert (running.block.version, running.value) == (1, 97.0)


def test_from_lockstep_to_arrival_the_iteration_before_is_finished_together() -> None:
    running = Running(LOCKSTEP)
    running.push(A, 3.0)
    running.change(generation=2, apply="arrival", apply_from=1, scale=0.5)
    assert (running.block.version, running.value) == (0, 100.0)
    running.push(B, 3.0)
    running.push(C, 3.0)
    assert (running.block.version, running.value) == (1, 97.0)
    running.push(B, 2.0, 1)
    assert running.value == 96.0


def test_from_lockstep_to_arrival_what_an_open_iteration_has_is_applied_and_counts_once() -> None:
    running = Running(LOCKSTEP)
    for peer in (A, B, C):
        running.push(peer, 3.0)
    running.push(A, 8.0, 1)
    running.change(generation=2, apply="arrival", apply_from=1, scale=0.5)
    assert running.value == 93.0
    assert [running.push(A, 8.0, 1), running.push(B, 8.0, 1), running.value] == [
        Verdict.REPEATED,
        Verdict.COUNT,
        89.0,
    ]


@pytest.mark.parametrize("free", [ARRIVAL, RELEASE])
def test_back_to_lockstep_nothing_is_lost_and_numbers_are_skipped(free: Roster) -> None:
    running = Running(free)
    running.push(A, 2.0, 0)
    running.push(A, 2.0, 1)
    running.push(B, 4.0, 0)
    running.change(generation=2, apply="quorum", apply_from=2, skip_to=2)
    assert (running.block.version, running.value) == (2, 96.0)
    assert [running.push(peer, 3.0, 2) for peer in (A, B, C)] == [Verdict.COUNT] * 3
    assert (running.block.version, running.value) == (3, 93.0)


def test_a_server_that_missed_an_asynchronous_time_opens_the_iteration_that_everyone_continued_with() -> None:
    running = Running(LOCKSTEP)
    running.change(generation=3, apply_from=40, skip_to=40)
    assert running.block.version == 40
    assert running.push(A, 3.0, 40) is Verdict.COUNT
