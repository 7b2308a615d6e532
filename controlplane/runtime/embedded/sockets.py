"""Folders for Unix sockets: the kernel bounds the length of their paths."""

import os
import tempfile
from pathlib import Path

from controlplane.runtime.embedded.errors import CannotStart

LIMIT = 100
"""Bytes in the path of a Unix socket; the kernel allows 107, macOS 103."""

COMMON = ("/tmp", "/var/tmp")  # noqa: S108 - a private folder is made there
"""Folders to use if TMPDIR itself is too long."""


def socket_folder(longest: str) -> Path:
    """Make a private folder in which a socket may have a path as long as ``longest``, relative to it.

    Raises:
        CannotStart: if no temporary folder is short enough and writable.
    """
    tried = dict.fromkeys((tempfile.gettempdir(), *COMMON))
    for place in tried:
        if fits(Path(place, "pl-12345678", longest)) and os.access(place, os.W_OK | os.X_OK):
            return Path(tempfile.mkdtemp(prefix="pl-", dir=place))
    room = LIMIT - len(f"/pl-12345678/{longest}")
    raise CannotStart(
        f"No folder for Unix sockets: {', '.join(tried)} are not writable or longer than {room} bytes; "
        "set TMPDIR to another folder."
    )


def fits(path: Path) -> bool:
    """Whether a Unix socket can have that path."""
    return len(os.fsencode(path)) <= LIMIT
