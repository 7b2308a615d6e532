"""The worker's end of a connection to one server: pulls and pushes of many blocks, pipelined.

Every request is answered in order by exactly one frame. Answered entries are removed from the caller's mapping, so that
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
"""Most open questions: few enough that answers fit any socket buffer, so that the ends cannot block each other."""


Receiving = Callable[[Header, memoryview], AbstractContextManager[None]]
"""The context in which a block's values are received into that memory."""


def unobserved(reply: Header, memory: memoryview) -> AbstractContextManager[None]:
    """Discards all records."""
    return nullcontext()


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The result of a round of requests, except for complete answers."""

    held_s: float = 0.0
    """Time for which the server held replies back, over all requests of this round."""
    stale: bool = False
    late: bool = False
    """A push came too late to count: others were named for its iteration."""
    moved: bool = False
    moved_s: float = 0.0
    """Part of ``held_s``: until it was known that a block had moved."""
    took_s: dict[int, float] = field(default_factory=dict, compare=False)
    """For each block the time from the answer before it to its own, without what the server held back."""


class ServerConnection(Connection):
    """A connection to one server, made and authenticated on creation; used by one thread at a time."""

    def __init__(
        self,
        address: ServerAddress,
        peer: Peer,
        *,
        checked: bool = False,
        open_channel: Callable[[socket.socket], Channel] = Channel,
        encryption: Encryption = PLAIN,
    ) -> None:
        """Connect and shake hands. Pushes carry the checksum of their payload if they should be ``checked``.

        Raises:
            Interrupted, Unauthorised, Unencrypted: as ``Connection``.
        """
        self._checked = checked
        self._rank = peer.rank
        super().__init__(address, peer, open_channel=open_channel, encryption=encryption)

    def pull(self, wanted: dict[int, memoryview], stamp: Header, receiving: Receiving = unobserved) -> Outcome:
        """Fill ``wanted`` (block -> its memory) with the values for the iteration of ``stamp``.

        Blocks that came are removed from ``wanted``. ``stale``: the server is past that iteration, so this worker
        does not count in it any more; ``moved``: it does not hold the block under its newer placement.
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

        Blocks that count, or are too late to, are removed from ``pending``. ``stale``: the server has a later
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
        """Hand a block over for the coming ``placement``, with checksums; it is acknowledged when this returns.

        Raises:
            Interrupted, Refused: if it is not.
        """
        stamp = Header(op=Op.PART, checked=True, block=block, placement=placement, rank=self._rank)
        self._channel.send(replace(stamp, op=Op.GIVE), manifest)
        for array in arrays:
            self._channel.send(stamp, array)
        reply = self._answer(block, Outcome())
        if reply.op is not Op.TAKEN:
            raise BadHeader(f"reply {reply.op.name} to a block that was handed over, expected TAKEN")

    def send_norms(self, payload: bytes) -> None:
        """Send another server the blocks' parts of gradient norms; it has them when this returns.

        Raises:
            Interrupted, Refused: if it does not.
        """
        self._channel.send(Header(op=Op.NORMS, checked=True, rank=self._rank), payload)
        reply = self._answer(0, Outcome())
        if reply.op is not Op.TAKEN:
            raise BadHeader(f"reply {reply.op.name} to norms of blocks, expected TAKEN")

    def fill(self, block: int, placement: int, values: memoryview, *, version: int, steps: int) -> None:
        """Give the server ``values`` to begin ``block`` with; it has when this returns.

        Raises:
            Interrupted, Refused: if it does not.
        """
        stamp = Header(op=Op.FILL, checked=True, block=block, placement=placement, rank=self._rank)
        self._channel.send(replace(stamp, iteration=version, samples=steps), values)
        reply = self._answer(block, Outcome())
        if reply.op is not Op.TAKEN:
            raise BadHeader(f"reply {reply.op.name} to the values of a block, expected TAKEN")

    def probe(self, payload: bytes) -> None:
        """Send ``payload`` there and get as much back: a transfer each way, of nothing."""
        self._channel.send(Header(op=Op.PROBE, rank=self._rank), payload)
        reply = self._answer(0, Outcome())
        self._channel.receive_bytes(reply)
        if reply.op is not Op.PROBED or reply.length != len(payload):
            raise BadHeader(f"reply {reply.op.name} of {reply.length} bytes to a probe of {len(payload)}")

    def _pipeline(
        self, blocks: list[int], ask: Callable[[int], None], take: Callable[[Header], None], outcome: Outcome
    ) -> None:
        """Ask for each block in order and take the answers in order, with a window of open questions."""
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
