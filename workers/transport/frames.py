"""The frame format: a fixed header with its own checksum, then a payload of the announced length.

The header's checksum is always verified, since a wrong length would read garbage as parameters. That of the payload is
verified only if its flag is set: TCP has one, and a second costs a third of the throughput.
"""

import struct
import zlib
from enum import IntEnum

from controlplane.protocol.base import Value
from workers.transport.errors import BadHeader, Oversized

MAGIC = b"PACE"
PROTOCOL = 1
MAX_PAYLOAD_BYTES = 4 * 1024 * 1024
"""Largest payload: one block of parameters."""

MAX_GREETING_BYTES = 512
"""Largest payload before the peer is authenticated."""

_LAYOUT = struct.Struct("!4sBBHIIIIIIIIdI")
_CHECKSUM = struct.Struct("!I")
HEADER_BYTES = _LAYOUT.size + _CHECKSUM.size

Buffer = bytes | bytearray | memoryview


class Op(IntEnum):
    """The operation of a frame."""

    CHALLENGE = 1
    HELLO = 2
    """Of a worker."""
    PEER_HELLO = 4
    """Of another server."""
    WELCOME = 3
    ENCRYPT = 5
    """A server's first frame: TLS follows."""
    PUSH = 10
    COUNTED = 11
    """The contribution was counted, now or in an earlier push of the same one."""
    STALE = 12
    """Sent under an earlier generation, or by a rank that is not a member in that iteration:
    refresh, then push again.
    """
    LATE = 13
    """Other ranks were named for its iteration: the contribution is dropped and must not be pushed again."""
    PULL = 20
    VALUES = 21
    PROBE = 22
    """A meaningless payload, returned with the same length: both directions are timed."""
    PROBED = 23
    GIVE = 24
    """From server to server: a block with this manifest; as many PARTs follow as the manifest lists."""
    PART = 25
    TAKEN = 26
    """The block was received completely, and waits for the orders that name it."""
    FILL = 27
    """From a worker: its copy of a block whose server was lost; answered by TAKEN."""
    NORMS = 28
    """From server to server: its blocks' parts of gradient norms; answered by TAKEN."""
    ASK = 29
    """From worker to worker: requests its progress."""
    PROGRESS = 32
    """The sender is in ``iteration`` and has finished all earlier ones; answers ASK."""
    MOVED = 30
    """The block is elsewhere under a newer placement: refresh, then request it there."""
    REFUSED = 31
    """The payload is the reason, as text; the server closes the connection."""


_CHECKED = 1
"""The flag of a frame whose header has the checksum of its payload."""


class Header(Value, frozen=True, kw_only=True, gc=False):
    """The fixed part of a frame. Fields that an operation does not use are zero.

    ``placement`` is a placement's version. ``iteration`` is that of a pushed contribution, the version asked for in
    a pull, and the version given in its reply. ``samples`` is how many samples are in a pushed sum; it is sent in the
    frame of the sum, so that neither can arrive without the other. In the reply to a pull, and where a block is
    filled, it is how often the block's values were changed. ``incarnation`` and ``generation`` are those of the
    sender's orders: a server that does not have these yet answers when it has. ``held_s`` is how long the server held a
    reply back because it waited for others. Where ``checked``, ``payload_checksum`` is that of the payload; it and
    ``length`` are filled in when a frame is sent.
    """

    op: Op
    checked: bool = False
    incarnation: int = 0
    generation: int = 0
    placement: int = 0
    iteration: int = 0
    block: int = 0
    rank: int = 0
    samples: int = 0
    length: int = 0
    held_s: float = 0.0
    payload_checksum: int = 0


def encode_frame_header(header: Header, payload: Buffer) -> bytes:
    """Encode the header of a frame with ``payload``: ``HEADER_BYTES`` bytes in network order, ending with its own
    checksum.
    """
    return _encode(header, len(payload), zlib.crc32(payload) if header.checked else 0)


def encode_header(header: Header) -> bytes:
    """Only the header, with any payload."""
    return _encode(header, header.length, header.payload_checksum)


def _encode(header: Header, length: int, payload_checksum: int) -> bytes:
    packed = _LAYOUT.pack(
        MAGIC,
        PROTOCOL,
        header.op,
        _CHECKED if header.checked else 0,
        header.incarnation,
        header.generation,
        header.placement,
        header.iteration,
        header.block,
        header.rank,
        header.samples,
        length,
        header.held_s,
        payload_checksum,
    )
    return packed + _CHECKSUM.pack(zlib.crc32(packed))


def decode_header(frame: Buffer, *, limit: int = MAX_PAYLOAD_BYTES) -> Header:
    """Decode the header in ``frame``.

    Raises:
        BadHeader: if it is not a header of this protocol and version, or was altered in transit.
        Oversized: if it announces more than ``limit`` bytes of payload.
    """
    packed, (checksum,) = frame[: _LAYOUT.size], _CHECKSUM.unpack_from(frame, _LAYOUT.size)
    magic, protocol, op, flags, *numbers, length, held_s, payload_checksum = _LAYOUT.unpack(packed)
    if magic != MAGIC or protocol != PROTOCOL:
        raise BadHeader(f"frame begins with {magic!r} version {protocol}, expected {MAGIC!r} version {PROTOCOL}")
    if checksum != zlib.crc32(packed):
        raise BadHeader(f"header checksum is {checksum:08x}, expected {zlib.crc32(packed):08x}: altered on the way")
    if length > limit:
        raise Oversized(f"payload of {length} bytes announced, at most {limit} are accepted here")
    incarnation, generation, placement, iteration, block, rank, samples = numbers
    return Header(
        op=_op(op),
        checked=bool(flags & _CHECKED),
        incarnation=incarnation,
        generation=generation,
        placement=placement,
        iteration=iteration,
        block=block,
        rank=rank,
        samples=samples,
        length=length,
        held_s=held_s,
        payload_checksum=payload_checksum,
    )


def _op(code: int) -> Op:
    try:
        return Op(code)
    except ValueError:
        raise BadHeader(f"operation {code} is not one of {sorted(map(int, Op))}") from None
