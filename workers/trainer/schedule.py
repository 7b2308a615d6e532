"""Which orders speak of an iteration: the newest ones may already be about later iterations only."""

from controlplane.protocol.orders import Orders


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
        first = max((at for at, orders in enumerate(self._heard) if orders.share_from <= iteration), default=0)
        del self._heard[:first]
        return self._heard[0]
