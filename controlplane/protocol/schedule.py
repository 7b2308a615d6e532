"""What orders say about one iteration: which of them hold for it, and which samples it takes. Pure.

The newest orders may already be about later iterations only, so older ones are kept for as long as they are needed.
"""

import msgspec

from controlplane.protocol.orders import Orders, Piece


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The samples of one iteration."""

    iteration: int
    position: int
    """Where in the job's permutations they begin."""
    share: int
    """How many are expected."""
    most: int
    """How many there are; with a budget that may be more than are expected."""
    pieces: list[Piece] = []
    """Where the data set is split among the workers: they replace the position."""
    budget_s: float | None = None
    """Stop after so long."""


class Schedule:
    """The orders received so far, as far as they may still be needed."""

    __slots__ = ("_heard",)

    def __init__(self) -> None:
        self._heard: list[Orders] = []

    def hear(self, orders: Orders) -> bool:
        """Store ``orders``, unless they or newer ones were received before; whether they are new."""
        if self._heard and orders.rank_in_time <= self._heard[-1].rank_in_time:
            return False
        self._heard.append(orders)
        return True

    def task(self, iteration: int) -> Task:
        """What the newest orders that name its share give, or else the oldest; asked of rising iterations."""
        heard = self._heard
        at = len(heard) - 1
        while at > 0 and not names_share(heard[at], iteration):
            at -= 1
        if at:
            del heard[:at]
        return task_of(heard[0], iteration)

    def coming(self, iteration: int) -> Task:
        """What ``task`` would give by now; asked of iterations that have not begun."""
        orders = next((orders for orders in reversed(self._heard) if names_share(orders, iteration)), self._heard[0])
        return task_of(orders, iteration)


def task_of(orders: Orders, iteration: int) -> Task:
    """The samples that ``orders`` give for ``iteration``.

    Those are its pieces, or the range that was handed out for it, or its place in the permutations by the common
    formula.
    """
    if orders.pieces_of == iteration:
        pieces = orders.pieces
        return Task(
            iteration=iteration,
            position=pieces[0].start if pieces else 0,
            share=orders.share,
            most=sum(piece.stop - piece.start for piece in pieces),
            pieces=pieces,
            budget_s=orders.budget_s,
        )
    position, share = _range(orders, iteration)
    return Task(
        iteration=iteration,
        position=position,
        share=share,
        most=share if orders.ceiling is None else max(share, orders.ceiling),
        budget_s=orders.budget_s,
    )


def names_share(orders: Orders, iteration: int) -> bool:
    """Whether ``orders`` say what ``iteration`` takes."""
    if orders.pieces_of is not None:
        return orders.pieces_of <= iteration
    if orders.share_from <= iteration:
        return True
    return any(lease.first <= iteration <= lease.last for lease in orders.ranges)


def _range(orders: Orders, iteration: int) -> tuple[int, int]:
    for lease in orders.ranges:
        if lease.first <= iteration <= lease.last:
            return lease.position + (iteration - lease.first) * lease.share, lease.share
    rounds = iteration - orders.origin_iteration
    return orders.origin_position + rounds * orders.global_batch + orders.offset, orders.share
