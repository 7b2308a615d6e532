"""Transfers of blocks between servers in virtual time: frozen, sent, acknowledged, and committed by the engine.

Each server transfers the blocks that its orders name, one after another, at the rate of the slower end. From
the version at which blocks are frozen until the new placement holds, updates for them wait, and so do whole updates
here, since a worker's update is one thing.
"""

from collections.abc import Callable

from controlplane.protocol.messages import BlocksHanded
from controlplane.protocol.orders import ServerOrders
from controlplane.simulator.kernel import Kernel
from controlplane.simulator.network import Network
from controlplane.simulator.server_processes import ServerProcesses


class BlockTransfer:
    """All transfers between live servers."""

    def __init__(self, kernel: Kernel, network: Network, processes: ServerProcesses) -> None:
        self._kernel, self._network, self._processes = kernel, network, processes
        self._ordered: dict[int, ServerOrders] = {}
        """By server, what it waits to freeze."""
        self._sent: dict[int, int] = {}
        """By server, the placement for which it has begun to hand over."""
        self._placement = 0
        """The change that is under way; 0: none."""
        self._frozen_from: int | None = None
        self._waiting: list[tuple[Callable[..., None], tuple[object, ...]]] = []
        self.moved_bytes = 0

    def holds(self, iteration: int) -> bool:
        """Whether an update of that iteration has to wait until the blocks have moved."""
        return self._frozen_from is not None and iteration >= self._frozen_from

    def wait(self, act: Callable[..., None], *arguments: object) -> None:
        """Let that happen when they have."""
        self._waiting.append((act, arguments))

    def receive(self, index: int, orders: ServerOrders, version: int) -> None:
        """Orders for one server, when ``version`` is the version of the values."""
        if orders.next_placement == 0:
            self._end()
            return
        if orders.next_placement != self._placement:
            self._end()
            self._placement = orders.next_placement
        if orders.sends and self._sent.get(index) != orders.next_placement:
            self._ordered[index] = orders
            self.reach(version)

    def go_back(self) -> None:
        """All servers restart: transfers in flight are dropped, and nothing waits for them."""
        self._ordered, self._sent, self._waiting = {}, {}, []
        self._placement, self._frozen_from = 0, None

    def reach(self, version: int) -> None:
        """The values have that version now: freeze what is to be."""
        for index, orders in list(self._ordered.items()):
            if version >= orders.freeze_at:
                del self._ordered[index]
                self._sent[index] = orders.next_placement
                self._frozen_from = orders.freeze_at
                self._send(index, orders)

    def _send(self, index: int, orders: ServerOrders) -> None:
        took_s, total = 0.0, 0
        for block in orders.blocks:
            if block.index in orders.sends:
                took_s += self._network.between_s(index, orders.sends[block.index], block.bytes)
                total += block.bytes
        self.moved_bytes += total
        self._kernel.after(took_s, self._sent_all, index, self._processes.instance(index), orders, total, took_s)

    def _sent_all(self, index: int, instance: str, orders: ServerOrders, total: int, took_s: float) -> None:
        self._processes.say(
            index,
            instance,
            lambda number: BlocksHanded(
                number=number, placement=orders.next_placement, blocks=sorted(orders.sends), bytes=total, seconds=took_s
            ),
        )

    def _end(self) -> None:
        """The change is committed, or will not be."""
        self._placement, self._frozen_from, self._ordered = 0, None, {}
        waiting, self._waiting = self._waiting, []
        for act, arguments in waiting:
            self._kernel.after(0.0, act, *arguments)
