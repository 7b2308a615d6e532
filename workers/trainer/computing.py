"""The computation of one iteration: all samples at once, or in micro-batches if it may have to end early.

An iteration ends early because of a stop order (A-BSP), an exhausted time budget, or when it is no longer needed. The
samples processed until then are the update, with their number.
"""

import math
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch

from controlplane.protocol.messages import MicroBatch
from controlplane.protocol.worker import WorkerMachine
from workers.emulation import Pace
from workers.link import WorkerLink
from workers.trainer.micro_batch import choose
from workers.trainer.sampler import Sampler, Work
from workers.workloads.shape import Prefetching, Replica, Samples, Update
from workers.workloads.tensors import is_finite

Begin = Callable[[int, torch.Tensor, int], None]
"""Called before an update that is computed as a whole, with its iteration, the memory of its
gradient, and its samples.
"""


class Skipped(Exception):
    """The iteration in progress is no longer needed: it is abandoned and not reported."""


def without_spoilt(update: Update, gradient: torch.Tensor, *, is_shared: bool = False) -> tuple[Update, str]:
    """Return the update, or an empty one if it is not finite; then also the loss.

    Args:
        update: the computed update.
        gradient: its sum, which is cleared together with it.
        is_shared: whether parts of the gradient were sent already, so that only the loss can be checked.
    """
    if not math.isfinite(update.loss):
        spoilt = str(update.loss)
    elif is_shared or is_finite(gradient):
        return update, ""
    else:
        spoilt = f"{update.loss:g}, and its gradient is not a number"
    gradient.zero_()
    return Update(loss_sum=0.0, samples=0), spoilt


class Computing:
    """Computes on one replica, at the speed of the emulated machine, if there is one.

    Args:
        worker: reports whether the iteration is still needed or cut short, and how often to report progress.
        sums: the memory of the replica's gradient sums; None: its ``gradient``.
        seed: unique to this worker of this job.
    """

    def __init__(
        self,
        replica: Replica,
        sampler: Sampler,
        worker: WorkerMachine,
        link: WorkerLink,
        pace: Pace,
        *,
        sums: torch.Tensor | None = None,
        seed: tuple[int, ...] = (0,),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._begin: Begin = lambda iteration, gradient, samples: None
        self._own = torch.from_numpy(replica.gradient) if sums is None else sums
        self._replica, self._sampler, self._worker, self._link, self._pace = replica, sampler, worker, link, pace
        self._seed, self._now = seed, now
        self._piece: int | None = None
        self._pieces: torch.Tensor | None = None
        """The sum over micro-batches, if there are any."""
        self.gradient = self._own
        """The sum of the gradients of the last ``run``."""

    def announce_to(self, begin: Begin) -> None:
        """Call ``begin`` for every update that will not end early."""
        self._begin = begin

    def prefetch(self, tasks: Sequence[Work]) -> None:
        """Prefetch the samples of these tasks, beginning with the next task of ``run``.

        Samples beyond a share, for which a time budget may leave time, are not prefetched.
        """
        if isinstance(self._replica, Prefetching):
            batches = [batch for task in tasks for batch in self._batches(task)]
            self._replica.prefetch([batch for batch in batches if len(batch)])

    def _batches(self, task: Work) -> list[Samples]:
        """The batches in which a share will be computed, unless it ends early; none while that is unknown."""
        if not self._runs_in_pieces(task):
            return [task.samples]
        if (piece := self._piece) is None:
            return []
        return [task.samples[at : min(at + piece, task.share)] for at in range(0, task.share, piece)]

    def _runs_in_pieces(self, task: Work) -> bool:
        return self._worker.may_end_early or task.budget_s is not None

    def _prepare(self, samples: Samples) -> None:
        """Choose the micro-batch size of this model on this machine, once, and report it.

        This is done at the first iteration that may end early; predictors ignore the first iteration of a new process.
        """
        if self._piece is not None or not len(samples):
            return
        size = choose(lambda count: self._measure(samples[:count]), len(samples), least_s=self._pace.least_s)
        self._piece = size.samples
        self._link.say(
            lambda number: MicroBatch(number=number, samples=size.samples, whole=size.whole, overhead=size.overhead)
        )

    def run(self, iteration: int, task: Work) -> tuple[Update, bool]:
        """Compute the update over the samples of ``task``; also return whether an emulated machine was too slow.

        Raises:
            Skipped: if the iteration is no longer needed.
        """
        if self._runs_in_pieces(task):
            self._prepare(task.samples)
            self._draw_for(iteration)
            return self._in_pieces(task)
        self._draw_for(iteration)
        self._pace.begin()
        self._begin(iteration, self._own, len(task.samples))
        update = self._replica.update(task.samples)
        self.gradient = self._own
        return update, self._pace.finish(len(task.samples))

    @property
    def _sum(self) -> torch.Tensor:
        if self._pieces is None:
            self._pieces = torch.zeros_like(self._own)
        return self._pieces

    def _draw_for(self, iteration: int) -> None:
        """Seed random numbers of the module (dropout) by job, worker and iteration only, so that a replay draws the
        same.
        """
        drawn = np.random.SeedSequence([*self._seed, iteration]).generate_state(1, np.uint64)
        torch.manual_seed(int(drawn[0]))

    def _in_pieces(self, task: Work) -> tuple[Update, bool]:
        piece = self._piece or 1
        self.gradient = self._sum.zero_()
        self._pace.begin()
        attempt, began = self._worker.attempt, self._now()
        reported = began
        done, loss_sum, overran = 0, 0.0, False
        self._check_not_cancelled(attempt)
        while done < len(task.samples) and not self._is_to_end(task, self._now() - began):
            # Not across the end of the share: a budget that is exhausted there must not be exceeded.
            end = min(done + piece, task.share) if done < task.share else done + piece
            update = self._replica.update(task.samples[done:end])
            self._sum.add_(self._own)
            done, loss_sum = done + update.samples, loss_sum + update.loss_sum
            overran = self._pace.finish(done)
            self._check_not_cancelled(attempt)
            reported = self._report_progress(done, reported, is_whole=done >= task.share)
        self._sampler.put_back(len(task.samples) - done)
        return Update(loss_sum=loss_sum, samples=done), overran

    def _check_not_cancelled(self, attempt: int) -> None:
        """Check the newest orders.

        Raises:
            Skipped: if this attempt is no longer needed.
        """
        if (orders := self._link.orders()) is not None:
            self._worker.receive(orders)
        if self._worker.attempt != attempt:
            raise Skipped

    def _is_to_end(self, task: Work, took_s: float) -> bool:
        return self._worker.is_cut or (task.budget_s is not None and took_s >= task.budget_s)

    def _report_progress(self, done: int, reported: float, *, is_whole: bool) -> float:
        """Report the iteration's progress if it is due or all is done; return when it was last reported."""
        every_s, now = self._worker.progress_s, self._now()
        if every_s is None or (now - reported < every_s and not is_whole):
            return reported
        self._worker.progressed(done)
        return now

    def _measure(self, samples: Samples) -> None:
        self._replica.update(samples)
        self._sum.add_(self._own)
