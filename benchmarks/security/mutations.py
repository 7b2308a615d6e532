"""Mutated frames: messages with bytes and values changed by a seed."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

import msgspec

VALUES: Final[Sequence[Any]] = (
    *(None, True, -1, 0, 2**31, 2**53, 2**63, -(2**63), 2**64 - 1, 0.5, 1e308, float("inf"), float("nan")),
    *(
        "",
        "\0",
        "w0",
        "x" * 5_000,
        "\ud7ff\u202e",
        b"",
        b"\xff" * 64,
        [],
        {},
        [[]] * 50,
        {"type": "hello"},
        [0] * 3_000,
    ),
)
"""Values that replace fields of a message."""

HEADS: Final = (
    b"\xdb\xff\xff\xff\xff",
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\xc1",
)
"""Beginnings of msgpack: a string, a list, a map and bytes of 4 GiB, and the one byte that means nothing."""

MOST_BYTES: Final = 8_192
"""Largest mutated frame; one in a thousand exceeds the limit of the sockets."""

HUGE_BYTES: Final = 300_000
HUGE_EVERY: Final = 1_000
DEEP: Final = 3_000


def mutated(frames: Sequence[bytes], random: Random) -> bytes:
    """A mutation of one of the frames."""
    if random.randrange(HUGE_EVERY) == 0:
        return random.randbytes(HUGE_BYTES)
    frame = random.choice(frames)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        frame = random.choice(KINDS)(frame, frames, random)
    return frame[:MOST_BYTES]


def _flip(frame: bytes, frames: Sequence[bytes], random: Random) -> bytes:
    if not frame:
        return frame
    changed = bytearray(frame)
    changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _cut(frame: bytes, frames: Sequence[bytes], random: Random) -> bytes:
    return frame[: random.randrange(len(frame) + 1)]


def _insert(frame: bytes, frames: Sequence[bytes], random: Random) -> bytes:
    at = random.randrange(len(frame) + 1)
    return frame[:at] + random.choice((random.randbytes(random.randrange(1, 9)), random.choice(HEADS))) + frame[at:]


def _splice(frame: bytes, frames: Sequence[bytes], random: Random) -> bytes:
    other = random.choice(frames)
    return frame[: random.randrange(len(frame) + 1)] + other[random.randrange(len(other) + 1) :]


def _field(frame: bytes, frames: Sequence[bytes], random: Random) -> bytes:
    """A well-formed message with a value that its type would not allow."""
    try:
        message = msgspec.msgpack.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return random.randbytes(random.randrange(64))
    if not isinstance(message, dict) or not message:
        return msgspec.msgpack.encode(random.choice(VALUES))
    name = random.choice(list(message))
    if random.random() < 0.1:
        del message[name]
    else:
        message[name if random.random() < 0.9 else "nothere"] = random.choice(VALUES)
    return msgspec.msgpack.encode(message)


def _deep(frame: bytes, frames: Sequence[bytes], random: Random) -> bytes:
    return random.choice((b"\x91", b"\x81\xa1a", b"[", b'{"a":')) * random.randrange(1, DEEP) + frame


KINDS: Final[Sequence[Callable[[bytes, Sequence[bytes], Random], bytes]]] = (
    *(_flip, _flip, _cut, _insert, _splice),
    *(_field, _field, _field),
    _deep,
)
