"""Transfers blocks of this server to others for the next placement, on one thread per receiver.

A block is frozen at the version that the orders name, sent, and acknowledged. When all were acknowledged, or one
failed, the result is reported once. The following orders decide: with a new placement the blocks leave; otherwise they
stay in use here.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from controlplane.protocol.orders import ServerAddress, ServerOrders
from workers.server.block import Block
from workers.server.block_transfer import pack
from workers.transport.client import ServerConnection
from workers.transport.errors import Interrupted, Stopped, TransportError

log = logging.getLogger(__name__)

ATTEMPTS = 3
PAUSE_S = 0.2


@dataclass(slots=True, kw_only=True)
class Handed:
    """The result. ``failure``: the reason if it failed."""

    placement: int
    blocks: list[int] = field(default_factory=list)
    size: int = 0
    """Number of bytes that were sent."""
    seconds: float = 0.0
    """From the first freeze to the last acknowledgement."""
    failure: str = ""


Connect = Callable[[ServerAddress], ServerConnection]


class Handover:
    """One change of placement, on one of its source servers.

    Args:
        blocks: those that the orders move to other servers.
        say: called once with the result, unless the handover was cancelled.
        reach: called at each step, for tests.
    """

    def __init__(
        self,
        orders: ServerOrders,
        blocks: Mapping[int, Block],
        connect: Connect,
        say: Callable[[Handed], None],
        *,
        reach: Callable[[str], None] = lambda point: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.placement = orders.next_placement
        self._blocks, self._connect, self._say, self._reach, self._now = dict(blocks), connect, say, reach, now
        self._freeze_at = orders.freeze_at
        self._addresses = {address.index: address for address in orders.receivers}
        self._ways = {to: [b for b in sorted(orders.sends) if orders.sends[b] == to] for to in orders.sends.values()}
        self._lock = threading.Lock()
        self._cancelled = threading.Event()
        self._frozen_at: float | None = None
        self._handed = Handed(placement=self.placement)
        self._left = len(self._ways)

    def start(self) -> None:
        """Freeze the blocks as soon as they have their version, and send them."""
        self._reach("ordered")
        for block in self._blocks.values():
            block.freeze(self._freeze_at)
        for receiver in self._ways:
            threading.Thread(target=self._run, args=(receiver,), name="handover", daemon=True).start()

    def cancel(self) -> None:
        """The orders no longer contain it: blocks that have not left stay here."""
        self._cancelled.set()
        for block in self._blocks.values():
            block.thaw()

    def _run(self, receiver: int) -> None:
        with suppress(Stopped):
            self._finish(self._failure_of(receiver))

    def _failure_of(self, receiver: int) -> str:
        """Why the blocks could not be sent to ``receiver``; "" if they were."""
        try:
            self._send_all(receiver)
        except Stopped:
            raise
        except (TransportError, ValueError, KeyError) as error:
            log.warning("blocks could not be handed over to server %d: %s", receiver, error)
            return f"to server {receiver}: {error}"
        return ""

    def _send_all(self, receiver: int) -> None:
        left, attempts = list(self._ways[receiver]), ATTEMPTS
        while left and not self._cancelled.is_set():
            try:
                self._send(receiver, left)
            except Interrupted:
                attempts -= 1
                if not attempts or self._cancelled.wait(PAUSE_S):
                    raise

    def _send(self, receiver: int, left: list[int]) -> None:
        """Send blocks on one connection; acknowledged ones are removed from ``left``."""
        connection = self._connect(self._addresses[receiver])
        try:
            while left and not self._cancelled.is_set():
                state = self._blocks[left[0]].await_frozen()
                if state is None:
                    return
                self._note_frozen()
                manifest, arrays = pack(state)
                self._reach("frozen")
                connection.give(left[0], self.placement, manifest, arrays)
                self._reach("acknowledged")
                self._note_handed(left.pop(0), len(manifest) + sum(map(len, arrays)))
        finally:
            connection.close()

    def _note_frozen(self) -> None:
        with self._lock:
            self._frozen_at = self._now() if self._frozen_at is None else self._frozen_at

    def _note_handed(self, block: int, size: int) -> None:
        with self._lock:
            self._handed.blocks.append(block)
            self._handed.size += size

    def _finish(self, failure: str) -> None:
        with self._lock:
            self._left -= 1
            failed_before = bool(self._handed.failure)
            self._handed.failure = self._handed.failure or failure
            if self._frozen_at is not None:
                self._handed.seconds = self._now() - self._frozen_at
            is_final = not failed_before and (bool(failure) or self._left == 0)
        if is_final and not self._cancelled.is_set():
            self._handed.blocks = sorted(self._handed.blocks) if not self._handed.failure else []
            self._say(self._handed)
            self._reach("said")
