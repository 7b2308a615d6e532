"""A worker's part in restoring a lost server's blocks: reports its copies, and sends those that are requested.

On a separate thread, so that it does not wait for a long iteration.
"""

import logging
import threading
import time
from collections import defaultdict

from controlplane.protocol.messages import Copies as SameCopies
from controlplane.protocol.messages import CopiesHeld
from controlplane.protocol.orders import Block, Orders
from workers.link import WorkerLink
from workers.trainer.copies import Copies, Copy
from workers.trainer.exchange import PAUSE_S, Exchange
from workers.transport.client import ServerConnection
from workers.transport.errors import TransportError
from workers.workloads.shape import Vector

log = logging.getLogger(__name__)


class Refiller:
    """Follows the orders until the process ends.

    Args:
        parameters: the memory into which blocks are pulled.
        still: held while ``parameters`` are changed other than by pulling.
    """

    def __init__(
        self,
        link: WorkerLink,
        servers: Exchange,
        copies: Copies,
        parameters: Vector,
        still: threading.Lock,
    ) -> None:
        self._link, self._servers, self._copies = link, servers, copies
        self._parameters, self._still = parameters, still
        self._announced = 0
        self._sent: set[int] = set()
        threading.Thread(target=self._run, name="refill", daemon=True).start()

    def _run(self) -> None:
        while (orders := self._link.await_orders(self._concerns)) is not None:
            if orders.refill > self._announced:
                self._announced, self._sent = orders.refill, set()
                self._announce_copies(orders)
            else:
                self._send(orders)

    def _concerns(self, orders: Orders) -> bool:
        is_due = orders.refill == self._announced and not self._sent.issuperset(orders.fills)
        return orders.refill > self._announced or (orders.refill > 0 and is_due)

    def _announce_copies(self, orders: Orders) -> None:
        """Report the available copies; they stay fixed from now on."""
        self._servers.forsake(orders.lost)
        alike: dict[Copy, list[int]] = defaultdict(list)
        for block, copy in self._copies.held(orders.lost).items():
            alike[copy].append(block)
        copies = [SameCopies(version=each.version, steps=each.steps, blocks=alike[each]) for each in alike]
        number_of = orders.refill
        self._link.say(lambda number: CopiesHeld(number=number, refill=number_of, copies=copies))

    def _send(self, orders: Orders) -> None:
        """Send the requested copies; failures are retried while the orders still contain the request."""
        placement = self._link.await_placement(orders.placement_version)
        if placement is None:
            return
        addresses = {address.index: address for address in placement.servers}
        due: dict[int, list[Block]] = defaultdict(list)
        for block in placement.blocks:
            if block.index in orders.fills and block.index not in self._sent:
                due[block.server].append(block)
        for server, blocks in due.items():
            try:
                connection = self._servers.connect(addresses[server])
                try:
                    for block in blocks:
                        self._send_block(connection, block, placement.version)
                finally:
                    connection.close()
            except TransportError as error:
                log.warning("server %d could not be given its blocks: %s", server, error)
                if self._link.stopping.wait(PAUSE_S):
                    return

    def _send_block(self, connection: ServerConnection, block: Block, placement: int) -> None:
        began = time.monotonic()
        with self._still:
            found = self._copies.read(block.index, self._parameters[block.start : block.stop].data.cast("B"))
        if found is not None:
            values, copy = found
            connection.fill(block.index, placement, values, version=copy.version, steps=copy.steps)
            log.info("gave block %d in %.3f s", block.index, time.monotonic() - began)
        self._sent.add(block.index)
