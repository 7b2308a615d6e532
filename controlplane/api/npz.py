"""Checks that a file is a numpy ``.npz`` of numeric arrays, at a bounded cost.

Python's ``zipfile`` reads the whole directory of a zip, and numpy the whole header of an array, of any length:
so both are bounded first. Nothing here unpickles, and only the beginning of each array is decompressed.
"""

import io
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

MAX_ENTRIES: Final = 10_000
"""Maximum number of arrays of a model."""

MAX_DIRECTORY: Final = 128 * MAX_ENTRIES
"""Maximum bytes of the zip directory."""

HEADER_BYTES: Final = 12 * 1024
"""Bytes read of an array: more than the longest header that numpy accepts."""

_END = struct.Struct("<4s4H2LH")
_LOCATOR = struct.Struct("<4sLQL")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_UNKNOWN = 0xFFFFFFFF


UNREADABLE: Final = (
    *(zipfile.BadZipFile, zlib.error, struct.error, tokenize.TokenError, OSError, EOFError, SyntaxError),
    *(ValueError, TypeError, LookupError, OverflowError, NotImplementedError, RuntimeError, MemoryError),
)
"""Exceptions of zipfile and numpy for a file that is malformed on purpose."""


class NoModel(ValueError):
    """The file is not a model; the message says why."""


def check_npz(path: Path) -> None:
    """Check the file without loading it.

    Raises:
        NoModel: if it is anything but a zip of ``.npy`` arrays of numbers.
    """
    with path.open("rb") as file:
        check_file(file)


def check_file(file: IO[bytes]) -> None:
    """The same for an open file."""
    _check_directory(file)
    try:
        with zipfile.ZipFile(file) as archive:
            count = len(archive.infolist())
            _check_size(count, 0)
            fault = next((entry.filename for entry in archive.infolist() if not _is_numbers(archive, entry)), None)
    except NoModel:
        raise
    except UNREADABLE as error:
        raise NoModel(f"the body is not a numpy .npz file: {error}") from None
    if fault is not None or not count:
        found = f"{fault[:200]!r} is none" if fault is not None else "it is empty"
        raise NoModel(f"the body must be a numpy .npz of arrays of numbers: {found}")


def _check_directory(file: IO[bytes]) -> None:
    """Check the size and number of entries of the directory that the end of the file declares."""
    size = file.seek(0, io.SEEK_END)
    if size < _END.size:
        raise NoModel("the body is not a numpy .npz file: not a zip archive")
    file.seek(size - _END.size)
    magic, *_, entries, length, _, comment = _END.unpack(file.read(_END.size))
    if magic != b"PK\x05\x06" or comment:
        raise NoModel("the body is not a numpy .npz file: it does not end as a zip without a comment")
    if (large := _large_end(file, size)) is not None:
        entries, length = large
    elif length == _UNKNOWN:
        raise NoModel("the body is not a numpy .npz file: its directory has no length")
    _check_size(entries, length)


def _check_size(entries: int, length: int) -> None:
    if entries > MAX_ENTRIES or length > MAX_DIRECTORY:
        raise NoModel(
            f"the body lists {entries} arrays in {length} bytes; the limits are {MAX_ENTRIES} and {MAX_DIRECTORY}"
        )


def _large_end(file: IO[bytes], size: int) -> tuple[int, int] | None:
    """Entries and length of the directory in the zip64 record; None if there is none."""
    at = size - _END.size - _LOCATOR.size
    if at < 0:
        return None
    file.seek(at)
    magic, *_ = _LOCATOR.unpack(file.read(_LOCATOR.size))
    if magic != b"PK\x06\x07":
        return None
    if at < _END_64.size:
        raise NoModel("the body is not a numpy .npz file: its directory is at the wrong place")
    file.seek(at - _END_64.size)
    magic, *_, entries, length, _ = _END_64.unpack(file.read(_END_64.size))
    if magic != b"PK\x06\x06":
        raise NoModel("the body is not a numpy .npz file: its directory is at the wrong place")
    return entries, length


def _is_numbers(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bool:
    if not entry.filename.endswith(".npy") or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return False
    with archive.open(entry) as member:
        begin = io.BytesIO(member.read(HEADER_BYTES))
    version = np.lib.format.read_magic(begin)
    read: Any = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    _, _, dtype = read(begin)
    return bool(dtype.kind in "biuf")
