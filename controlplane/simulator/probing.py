"""Probes in virtual time: small extra transfers that time servers with too few blocks to be timed by training."""

from collections.abc import Callable

from controlplane.protocol.messages import Exchanged
from controlplane.protocol.orders import Orders
from controlplane.simulator.network import Network


class Probes:
    """Probes of one worker instance; answers after its end are dropped."""

    __slots__ = ("_back", "_network", "_now", "_rank", "_round")

    def __init__(self, rank: int, network: Network, now: Callable[[], float]) -> None:
        self._rank, self._network, self._now = rank, network, now
        self._round = 0
        self._back: list[Exchanged] = []

    def send(self, orders: Orders, iteration: int) -> None:
        """Push to each server that the orders name, then pull from it; once per probe round."""
        if orders.probe_round <= self._round:
            return
        self._round = orders.probe_round
        if self._network.is_shared:
            for server, size in sorted(orders.probes.items()):
                self._network.transfer(
                    self._rank, {server: size}, iteration, 0, self._pull, server, size, iteration, self._now()
                )

    def taken(self) -> list[Exchanged]:
        """Probes that have returned since the last call."""
        back, self._back = self._back, []
        return back

    def _pull(self, server: int, size: int, iteration: int, began_s: float) -> None:
        self._network.transfer(self._rank, {server: size}, iteration, 1, self._return, server, size, began_s)

    def _return(self, server: int, size: int, began_s: float) -> None:
        took_s = self._now() - began_s
        self._back.append(Exchanged(server=server, bytes=size, push_s=took_s, pull_s=0.0, is_probe=True))
