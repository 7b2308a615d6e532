"""What orders say about one iteration of a simulated worker: as ``workers.trainer.schedule`` reads them."""

from typing import NamedTuple

from controlplane.protocol.orders import Orders, Piece


class Task(NamedTuple):
    """The samples of one iteration."""

    position: int
    """Where in the job's permutations they begin."""
    most: int
    """How many there are; with a budget that is more than are expected."""
    pieces: list[Piece]
    """Where the data set is split among the workers: they replace the position."""
    budget_s: float | None
    """Stop after so long."""


class Schedule:
    """The orders heard so far, as far as they may still be needed."""

    __slots__ = ("_heard",)

    def __init__(self) -> None:
        self._heard: list[Orders] = []

    def hear(self, orders: Orders) -> None:
        """Remember orders that are newer than all before."""
        self._heard.append(orders)

    def forget(self) -> None:
        """A new process knows none."""
        self._heard = []

    def task(self, iteration: int) -> Task:
        """What is to be done in it, by the newest orders that speak of it, or else the oldest."""
        heard = self._heard
        if len(heard) > 1:
            first = max((at for at, orders in enumerate(heard) if _speaks(orders, iteration)), default=0)
            del heard[:first]
        return _task(heard[0], iteration)


def _speaks(orders: Orders, iteration: int) -> bool:
    if orders.pieces_of is not None:
        return orders.pieces_of <= iteration
    if any(lease.first <= iteration <= lease.last for lease in orders.ranges):
        return True
    return orders.share_from <= iteration


def _task(orders: Orders, iteration: int) -> Task:
    if orders.pieces_of == iteration:
        pieces = orders.pieces
        most = sum(piece.stop - piece.start for piece in pieces)
        return Task(pieces[0].start if pieces else 0, most, pieces, orders.budget_s)
    for lease in orders.ranges:
        if lease.first <= iteration <= lease.last:
            position, share = lease.position + (iteration - lease.first) * lease.share, lease.share
            break
    else:
        rounds = iteration - orders.origin_iteration
        position, share = orders.origin_position + rounds * orders.global_batch + orders.offset, orders.share
    most = share if orders.ceiling is None else max(share, orders.ceiling)
    return Task(position, most, [], orders.budget_s)
