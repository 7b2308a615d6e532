"""The computation of one iteration: where it ends when an order to stop comes in the middle, and what is left."""

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from controlplane.protocol.messages import ProgressReport
from controlplane.protocol.orders import Orders
from controlplane.protocol.worker import Step, WorkerMachine
from tests.workers.driver import MemoryWorkerLink
from workers.emulation import Pace
from workers.trainer.computing import Computing, Skipped, without_spoilt
from workers.trainer.micro_batch import Size
from workers.trainer.sampler import Work
from workers.workloads.shape import Update

PIECE, SHARE, ITERATION = 4, 18, 3


def orders(**changes: Any) -> Orders:
    fields: dict[str, Any] = {
        "incarnation": 0,
        "generation": 1,
        "sequence": 1,
        "share": SHARE,
        "offset": 0,
        "global_batch": SHARE,
        "origin_iteration": 0,
        "origin_position": 0,
        "share_from": ITERATION,
        "share_until": 9,
        "watermark": 9,
        "placement_version": 1,
        "progress_s": 0.0,
    }
    return Orders(**(fields | changes))


class Replica:
    """Counts what it is given; at a stated piece the control plane says something."""

    def __init__(self, link: MemoryWorkerLink, at_piece: int, says: Orders) -> None:
        self.gradient = np.zeros(1, dtype=np.float32)
        self.pieces: list[list[int]] = []
        self._link, self._at_piece, self._says = link, at_piece, says

    def update(self, samples: Any) -> Update:
        self.pieces.append(list(samples))
        self.gradient[0] = len(samples)
        if len(self.pieces) == self._at_piece:
            self._link.give(self._says)
        return Update(loss_sum=float(len(samples)), samples=len(samples))


class Sampler:
    """Takes back what was not processed."""

    returned = 0

    def put_back(self, count: int) -> None:
        self.returned = count


def about_to_compute(link: MemoryWorkerLink) -> WorkerMachine:
    """A worker that has its parameters and its share."""
    worker, newest = WorkerMachine(link.say), link.orders()
    assert newest is not None
    worker.receive(newest)
    assert worker.next(0.0) is Step.PULL
    worker.pulled(0.0)
    assert worker.next(0.0) is Step.COMPUTE
    return worker


def run(at_piece: int, says: Orders) -> tuple[Computing, Replica, Sampler, MemoryWorkerLink, Update]:
    link = MemoryWorkerLink()
    link.give(orders())
    replica, sampler = Replica(link, at_piece, says), Sampler()
    pace = Pace(None, rest=lambda seconds: False)
    computing = Computing(replica, sampler, about_to_compute(link), link, pace)  # type: ignore[arg-type]
    task = Work(position=0, samples=np.arange(SHARE), share=SHARE)
    with patch("workers.trainer.computing.choose", return_value=Size(samples=PIECE, whole=SHARE, overhead=0.0)):
        update, _ = computing.run(ITERATION, task)
    return computing, replica, sampler, link, update


@pytest.mark.parametrize("at_piece", [1, 2, 3, 4])
def test_an_order_to_stop_within_a_micro_batch_is_obeyed_at_its_end(at_piece: int) -> None:
    computing, replica, sampler, link, update = run(at_piece, orders(sequence=2, cut=3))
    assert replica.pieces == [list(range(k * PIECE, (k + 1) * PIECE)) for k in range(at_piece)]
    assert (update.samples, sampler.returned) == (at_piece * PIECE, SHARE - at_piece * PIECE)
    assert computing.gradient.tolist() == [at_piece * PIECE]
    assert link.heard(ProgressReport)[-1].samples_done == at_piece * PIECE


def test_an_order_to_stop_another_iteration_is_no_concern() -> None:
    _, replica, sampler, _, update = run(1, orders(sequence=2, cut=2))
    assert [len(piece) for piece in replica.pieces] == [4, 4, 4, 4, 2]
    assert (update.samples, sampler.returned) == (SHARE, 0)


def test_an_iteration_that_does_not_count_is_abandoned_at_the_end_of_a_micro_batch() -> None:
    says = replace(orders(sequence=2), skip_to=4)
    with pytest.raises(Skipped):
        run(2, says)


def test_what_a_module_draws_depends_on_job_worker_and_iteration() -> None:
    class Drawing:
        gradient = np.zeros(1, dtype=np.float32)

        def update(self, samples: Any) -> Update:
            return Update(loss_sum=float(torch.rand(())), samples=len(samples))

    def draw(seed: tuple[int, ...], iteration: int) -> float:
        pace = Pace(None, rest=lambda seconds: False)
        link = MemoryWorkerLink()
        worker = WorkerMachine(link.say)
        computing = Computing(Drawing(), Sampler(), worker, link, pace, seed=seed)  # type: ignore[arg-type]
        return computing.run(iteration, Work(position=0, samples=np.arange(3), share=3))[0].loss_sum

    drawn = [draw((7, 0), 4), draw((8, 0), 4), draw((7, 1), 4), draw((7, 0), 5)]
    assert len(set(drawn)) == 4
    assert draw((7, 0), 4) == drawn[0]


@pytest.mark.parametrize(
    ("loss_sum", "gradient", "spoilt"),
    [
        (6.0, [1.0, np.nan], "3, and its gradient is not a number"),
        (6.0, [np.inf, -np.inf], "3, and its gradient is not a number"),
        (np.nan, [1.0, 2.0], "nan"),
        (-np.inf, [np.nan, 2.0], "-inf"),
    ],
)
def test_an_update_that_is_no_number_is_made_empty(loss_sum: float, gradient: list[float], spoilt: str) -> None:
    vector = torch.tensor(gradient)
    assert without_spoilt(Update(loss_sum=loss_sum, samples=2), vector) == (Update(loss_sum=0.0, samples=0), spoilt)
    assert vector.tolist() == [0.0, 0.0]


def test_an_update_of_numbers_stays_even_where_their_sum_is_too_large() -> None:
    update, largest = Update(loss_sum=6.0, samples=2), torch.finfo(torch.float32).max
    vector = torch.tensor([largest, largest])
    assert without_spoilt(update, vector) == (update, "")
    assert vector.tolist() == [largest, largest]


def test_a_gradient_that_others_have_parts_of_stays_as_it_is() -> None:
    update, vector = Update(loss_sum=6.0, samples=2), torch.tensor([np.nan])
    assert without_spoilt(update, vector, is_shared=True) == (update, "")


class Ahead(Replica):
    """Notes what it may take ahead."""

    expected: list[list[int]] | None = None

    def prefetch(self, batches: Any) -> None:
        self.expected = [list(batch) for batch in batches]


@pytest.mark.parametrize("share", [SHARE, 10], ids=["the whole", "less than a budget leaves time for"])
def test_what_is_taken_ahead_are_the_pieces_in_which_it_is_going_to_be_computed(share: int) -> None:
    link = MemoryWorkerLink()
    link.give(orders())
    replica = Ahead(link, 0, orders())
    pace = Pace(None, rest=lambda seconds: False)
    computing = Computing(replica, Sampler(), about_to_compute(link), link, pace)  # type: ignore[arg-type]
    work = Work(position=0, samples=np.arange(SHARE), share=share)
    computing.prefetch([work])
    assert replica.expected == []  # the size of pieces is not known yet
    with patch("workers.trainer.computing.choose", return_value=Size(samples=PIECE, whole=SHARE, overhead=0.0)):
        computing.run(3, work)
    replica.pieces.clear()
    computing.prefetch([work])
    computing.run(4, work)
    assert replica.expected is not None
    assert replica.pieces[: len(replica.expected)] == replica.expected
    assert [sample for piece in replica.expected for sample in piece] == list(range(share))
