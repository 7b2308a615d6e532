"""The header of stored arrays: their format and the names of their columns.

Arrays from before a column was added or removed stay readable: a reader uses the columns that it knows, by name.
"""

from collections.abc import Sequence
from typing import Final

ITEM_BYTES: Final = 8
"""Width of every value, so that any iteration is found in stored bytes without reading the values before it; a header
is made of whole items."""


def header(kind: bytes, names: Sequence[str]) -> bytes:
    """``kind`` (8 bytes: what it is, and its version), the size of the names, and the names."""
    listed = ",".join(names).encode()
    listed += b" " * (-len(listed) % ITEM_BYTES)
    return kind + len(listed).to_bytes(ITEM_BYTES, "little") + listed


def named(kind: bytes, data: bytes) -> tuple[tuple[str, ...], bytes]:
    """The names of the columns, and the values.

    Raises:
        ValueError: if the bytes are of another kind or version.
    """
    if data[: len(kind)] != kind:
        what = kind[: kind.index(0)].decode()
        raise ValueError(
            f"a stored {what} begins with {data[: len(kind)]!r}, expected {kind!r}: was it written by"
            " a later release, or was `manage.py migrate` not run?"
        )
    begin = len(kind) + ITEM_BYTES
    end = begin + int.from_bytes(data[len(kind) : begin], "little")
    return tuple(data[begin:end].decode().strip().split(",")), data[end:]
