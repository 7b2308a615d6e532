"""The client side of a connection to one server: pipelined pulls and pushes of many blocks.

Every request gets exactly one frame in reply, in order. Answered entries are removed from the caller's mapping, so that
a retry on a new connection requests only the rest.
"""

import socket
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from msgspec.structs import replace

from controlplane.protocol.orders import ServerAddress
from workers.transport.channel import Channel
from workers.transport.connection import Connection
from workers.transport.encryption import PLAIN, Encryption
from workers.transport.errors import BadHeader, Refused
from workers.transport.frames import Header, Op
from workers.transport.handshake import Peer

WINDOW = 16
"""Maximum number of open requests: few enough that replies fit into any socket buffer, so that the ends cannot block
each other.
"""


Receiving = Callable[[Header, memoryview], AbstractContextManager[None]]
"""The context in which a block's values are received into that memory."""


def unobserved(reply: Header, memory: memoryview) -> AbstractContextManager[None]:
    """Discards all records."""
    return nullcontext()


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The result of a round of requests, in addition to complete replies."""

    held_s: float = 0.0
    """Time for which the server delayed replies, over all requests of this round."""
    stale: bool = False
    late: bool = False
    """A push arrived too late to count: other ranks were named for its iteration."""
    moved: bool = False
    moved_s: float = 0.0
    """Part of ``held_s``: until it was known that a block had moved."""
    took_s: dict[int, float] = field(default_factory=dict, compare=False)
    """For each block the time from the previous reply to its own, without delays by the server."""


class ServerConnection(Connection):
    """A connection to one server, authenticated on creation; used by one thread at a time."""

    def __init__(
        self,
        address: ServerAddress,
        peer: Peer,
        *,
        checked: bool = False,
        open_channel: Callable[[socket.socket], Channel] = Channel,
        encryption: Encryption = PLAIN,
    ) -> None:
        """Connect and authenticate. If ``checked``, pushes have the checksum of their payload.

        Raises:
            Interrupted, Unauthorised, Unencrypted: as ``Connection``.
        """
        self._checked = checked
        self._rank = peer.rank
        super().__init__(address, peer, open_channel=open_channel, encryption=encryption)

    def pull(self, wanted: dict[int, memoryview], stamp: Header, receiving: Receiving = unobserved) -> Outcome:
        """Fill ``wanted`` (block -> its memory) with the values for the iteration of ``stamp``.

        Received blocks are removed from ``wanted``. ``stale``: the server is past that iteration, so this worker no
        longer counts in it; ``moved``: it does not hold the block under its newer placement.
        """

        def ask(block: int) -> None:
            self._channel.send(replace(stamp, op=Op.PULL, block=block, rank=self._rank))

        def take(reply: Header) -> None:
            if reply.op is Op.VALUES:
                with receiving(reply, wanted[reply.block]):
                    self._channel.receive_payload(reply, wanted[reply.block])
                outcome.stale |= reply.iteration != stamp.iteration
                if reply.iteration == stamp.iteration:
                    del wanted[reply.block]

        outcome = Outcome()
        self._pipeline(list(wanted), ask, take, outcome)
        return outcome

    def push(self, pending: dict[int, memoryview], stamp: Header) -> Outcome:
        """Push each of ``pending`` (block -> the sum of its gradients) under the other fields of ``stamp``.

        Blocks that were counted, or were too late, are removed from ``pending``. ``stale``: the server has a later
        generation.
        """

        def offer(block: int) -> None:
            self._channel.send(replace(stamp, op=Op.PUSH, checked=self._checked, block=block), pending[block])

        def take(reply: Header) -> None:
            if reply.op in (Op.COUNTED, Op.LATE):
                del pending[reply.block]

        outcome = Outcome()
        self._pipeline(list(pending), offer, take, outcome)
        return outcome

    def give(self, block: int, placement: int, manifest: bytes, arrays: Sequence[memoryview]) -> None:
        """Send a block for the next ``placement``, with checksums; it is acknowledged when this returns.

        Raises:
            Interrupted, Refused: if it is not acknowledged.
        """
        stamp = Header(op=Op.PART, checked=True, block=block, placement=placement, rank=self._rank)
        self._channel.send(replace(stamp, op=Op.GIVE), manifest)
        for array in arrays:
            self._channel.send(stamp, array)
        reply = self._answer(block, Outcome())
        if reply.op is not Op.TAKEN:
            raise BadHeader(f"reply {reply.op.name} to a block that was handed over, expected TAKEN")

    def send_norms(self, payload: bytes) -> None:
        """Send another server the blocks' parts of gradient norms; they are acknowledged when this returns.

        Raises:
            Interrupted, Refused: if they are not acknowledged.
        """
        self._channel.send(Header(op=Op.NORMS, checked=True, rank=self._rank), payload)
        reply = self._answer(0, Outcome())
        if reply.op is not Op.TAKEN:
            raise BadHeader(f"reply {reply.op.name} to norms of blocks, expected TAKEN")

    def fill(self, block: int, placement: int, values: memoryview, *, version: int, steps: int) -> None:
        """Send ``values`` to restore ``block`` on the server; they are acknowledged when this returns.

        Raises:
            Interrupted, Refused: if they are not acknowledged.
        """
        stamp = Header(op=Op.FILL, checked=True, block=block, placement=placement, rank=self._rank)
        self._channel.send(replace(stamp, iteration=version, samples=steps), values)
        reply = self._answer(block, Outcome())
        if reply.op is not Op.TAKEN:
            raise BadHeader(f"reply {reply.op.name} to the values of a block, expected TAKEN")

    def probe(self, payload: bytes) -> None:
        """Send ``payload`` and receive as much back: a timed transfer in each direction, without effect."""
        self._channel.send(Header(op=Op.PROBE, rank=self._rank), payload)
        reply = self._answer(0, Outcome())
        self._channel.receive_bytes(reply)
        if reply.op is not Op.PROBED or reply.length != len(payload):
            raise BadHeader(f"reply {reply.op.name} of {reply.length} bytes to a probe of {len(payload)}")

    def _pipeline(
        self, blocks: list[int], ask: Callable[[int], None], take: Callable[[Header], None], outcome: Outcome
    ) -> None:
        """Request each block in order and receive the replies in order, with a window of open requests."""
        answered, mark = 0, time.monotonic()

        def settle(block: int) -> float:
            reply = self._answer(block, outcome)
            take(reply)
            now = time.monotonic()
            outcome.took_s[block] = max(0.0, now - mark - reply.held_s)
            return now

        for asked, block in enumerate(blocks):
            if asked - answered >= WINDOW:
                mark = settle(blocks[answered])
                answered += 1
            ask(block)
        for block in blocks[answered:]:
            mark = settle(block)

    def _answer(self, block: int, outcome: Outcome) -> Header:
        """The next reply, which must be for ``block``."""
        reply = self._channel.receive()
        if reply.op is Op.REFUSED:
            raise Refused(self._channel.receive_bytes(reply).decode(errors="replace"))
        if reply.block != block:
            raise BadHeader(f"reply {reply.op.name} is for block {reply.block}, expected block {block}")
        outcome.held_s += reply.held_s
        outcome.stale |= reply.op is Op.STALE
        outcome.late |= reply.op is Op.LATE
        outcome.moved |= reply.op is Op.MOVED
        outcome.moved_s += reply.held_s if reply.op is Op.MOVED else 0.0
        return reply
