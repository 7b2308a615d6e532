"""What orders say about one iteration of a simulated worker: as ``workers.trainer.schedule`` reads them."""

from controlplane.protocol.orders import Orders, Piece


class Schedule:
    """The orders heard so far, as far as they may still be needed, and the samples of the iteration turned to last."""

    __slots__ = ("_heard", "budget_s", "most", "pieces", "position")

    def __init__(self) -> None:
        self._heard: list[Orders] = []
        self.position = 0
        """Where in the job's permutations its samples begin."""
        self.most = 0
        """How many there are; with a budget that is more than are expected."""
        self.pieces: list[Piece] = []
        """Where the data set is split among the workers: they replace the position."""
        self.budget_s: float | None = None
        """Stop after so long."""

    def hear(self, orders: Orders) -> None:
        """Remember orders that are newer than all before."""
        self._heard.append(orders)

    def forget(self) -> None:
        """A new process knows none."""
        self._heard = []

    def turn_to(self, iteration: int) -> None:
        """Learn what is to be done in it, by the newest orders that speak of it, or else the oldest."""
        heard = self._heard
        for newer in range(len(heard) - 1, 0, -1):
            if _speaks(heard[newer], iteration):
                del heard[:newer]
                break
        orders = heard[0]
        self.budget_s = orders.budget_s
        if orders.pieces_of == iteration:
            pieces = self.pieces = orders.pieces
            self.position = pieces[0].start if pieces else 0
            self.most = sum(piece.stop - piece.start for piece in pieces)
            return
        if self.pieces:
            self.pieces = []
        for lease in orders.ranges:
            if lease.first <= iteration <= lease.last:
                self.position, share = lease.position + (iteration - lease.first) * lease.share, lease.share
                break
        else:
            rounds, share = iteration - orders.origin_iteration, orders.share
            self.position = orders.origin_position + rounds * orders.global_batch + orders.offset
        self.most = share if orders.ceiling is None else max(share, orders.ceiling)


def _speaks(orders: Orders, iteration: int) -> bool:
    if orders.pieces_of is not None:
        return orders.pieces_of <= iteration
    if orders.share_from <= iteration:
        return True
    return any(lease.first <= iteration <= lease.last for lease in orders.ranges)
