"""Selects the orders that apply to an iteration, and the samples it uses. Pure.

The newest orders may apply to later iterations only, so older ones are kept while they are needed.
"""

import msgspec

from controlplane.protocol.orders import Orders, Piece


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The samples of one iteration."""

    iteration: int
    position: int
    """Position in the job's permutations."""
    share: int
    """Expected number of samples."""
    most: int
    """Maximum number of samples; larger than ``share`` with a time budget."""
    pieces: list[Piece] = []
    """If the dataset is divided among the workers: replaces the position."""
    budget_s: float | None = None
    """Stop after so long."""


class Schedule:
    """The orders received so far that may still be needed."""

    __slots__ = ("_received",)

    def __init__(self) -> None:
        self._received: list[Orders] = []

    def receive(self, orders: Orders) -> bool:
        """Store ``orders``, unless they or newer ones were received before; return whether they are new."""
        if self._received and orders.rank_in_time <= self._received[-1].rank_in_time:
            return False
        self._received.append(orders)
        return True

    def task(self, iteration: int) -> Task:
        """The task according to the newest orders with its share, or else the oldest; call
        with increasing iterations.
        """
        self.forget_before(iteration)
        return task_of(self._received[0], iteration)

    def forget_before(self, iteration: int) -> None:
        """Drop orders that ``task`` does not need for that iteration or a later one."""
        received = self._received
        at = len(received) - 1
        while at > 0 and not names_share(received[at], iteration):
            at -= 1
        if at:
            del received[:at]

    def coming(self, iteration: int) -> Task:
        """The current result of ``task``, for iterations that have not begun."""
        orders = next(
            (orders for orders in reversed(self._received) if names_share(orders, iteration)), self._received[0]
        )
        return task_of(orders, iteration)


def task_of(orders: Orders, iteration: int) -> Task:
    """The samples that ``orders`` assign to ``iteration``.

    Those are its pieces, or its assigned range, or its range by the common formula.
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
    """Whether ``orders`` define the samples of ``iteration``."""
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
