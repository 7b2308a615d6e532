"""Transfers of blocks between servers in virtual time: frozen, sent, acknowledged, and committed by the engine.

Each server transfers the blocks that its orders name, one after another, at the rate of the slower end. From the
version at which blocks are frozen until the new placement holds, updates for them wait. Here whole updates wait, since
a worker's update is not divided.
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
        """By server: the orders that wait for their version to freeze."""
        self._sent: dict[int, int] = {}
        """By server: the placement for which it has begun to send blocks."""
        self._placement = 0
        """The version of the open change; 0 if none."""
        self._frozen_from: int | None = None
        self._waiting: list[tuple[Callable[..., None], tuple[object, ...]]] = []
        self.moved_bytes = 0

    def holds(self, iteration: int) -> bool:
        """Whether an update of that iteration must wait until the blocks have moved."""
        return self._frozen_from is not None and iteration >= self._frozen_from

    def wait(self, act: Callable[..., None], *arguments: object) -> None:
        """Call ``act`` when they have moved."""
        self._waiting.append((act, arguments))

    def receive(self, index: int, orders: ServerOrders, version: int) -> None:
        """Orders for one server at parameter version ``version``."""
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
        """All servers restart: transfers in flight are dropped, and no update waits for them."""
        self._ordered, self._sent, self._waiting = {}, {}, []
        self._placement, self._frozen_from = 0, None

    def reach(self, version: int) -> None:
        """The parameters have reached that version: freeze the blocks ordered for it."""
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
        """The change was committed or cancelled."""
        self._placement, self._frozen_from, self._ordered = 0, None, {}
        waiting, self._waiting = self._waiting, []
        for act, arguments in waiting:
            self._kernel.after(0.0, act, *arguments)
