"""The header of stored arrays: their format and the names of their columns.

Arrays stay readable after columns are added or removed: a reader uses the columns that it knows, by name.
"""

from collections.abc import Sequence
from typing import Final

ITEM_BYTES: Final = 8
"""Width of every value, so that any iteration can be found in stored bytes without reading earlier values; the header
has a multiple of this size.
"""


def header(kind: bytes, names: Sequence[str]) -> bytes:
    """The header: ``kind`` (8 bytes with format and version), the size of the names, and the names."""
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
