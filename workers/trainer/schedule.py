"""What orders say about one iteration: which of them speak of it, and which samples are to be processed.

The newest orders may already be about later iterations only, so the older ones are kept as long as they may be needed.
"""

from dataclasses import dataclass

import numpy as np

from controlplane.protocol.orders import Orders
from workers.trainer.sampler import Sampler, first_position
from workers.workloads.shape import Samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The samples of one iteration, in the order in which they are to be processed."""

    position: int
    """Where in the job's permutations they begin."""
    samples: Samples
    share: int
    """How many are expected; with a budget there may be more."""
    budget_s: float | None = None
    """Stop after so long."""


class Schedule:
    """The orders heard so far, as far as they may still be needed."""

    def __init__(self) -> None:
        self._heard: list[Orders] = []

    def hear(self, orders: Orders) -> None:
        """Remember ``orders``, unless they or newer ones were heard before."""
        if not self._heard or orders.rank_in_time > self._heard[-1].rank_in_time:
            self._heard.append(orders)

    def speaking_of(self, iteration: int) -> Orders:
        """The newest orders that name a share for ``iteration``, or else the oldest; asked with rising iterations."""
        first = max((at for at, orders in enumerate(self._heard) if _speaks(orders, iteration)), default=0)
        del self._heard[:first]
        return self._heard[0]

    def coming(self, iteration: int) -> Orders:
        """What ``speaking_of`` would give by now; asked of iterations that are not under way yet."""
        return next((orders for orders in reversed(self._heard) if _speaks(orders, iteration)), self._heard[0])


def task(orders: Orders, iteration: int, sampler: Sampler) -> Task:
    """What ``orders``, which speak of ``iteration``, give the worker to do in it."""
    if orders.pieces_of == iteration:
        parts = [sampler.samples(piece.start, piece.stop - piece.start) for piece in orders.pieces]
        samples = np.concatenate([np.empty(0, dtype=np.int64), *parts])
        position = orders.pieces[0].start if orders.pieces else 0
        return Task(position=position, samples=samples, share=orders.share, budget_s=orders.budget_s)
    position, share = _range(orders, iteration)
    most = share if orders.ceiling is None else max(share, orders.ceiling)
    samples = sampler.samples(position, most)
    return Task(position=position, samples=samples, share=share, budget_s=orders.budget_s)


def _range(orders: Orders, iteration: int) -> tuple[int, int]:
    """Position and share of an iteration: of the range that was handed out for it, else by the common formula."""
    for lease in orders.ranges:
        if lease.first <= iteration <= lease.last:
            return lease.position + (iteration - lease.first) * lease.share, lease.share
    return first_position(orders, iteration), orders.share


def _speaks(orders: Orders, iteration: int) -> bool:
    if orders.pieces_of is not None:
        return orders.pieces_of <= iteration
    if any(lease.first <= iteration <= lease.last for lease in orders.ranges):
        return True
    return orders.share_from <= iteration
