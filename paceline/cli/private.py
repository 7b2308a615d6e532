"""Folders and files that only their owner can read, even if they existed before."""

import os
import stat
from contextlib import suppress
from pathlib import Path

from paceline.cli.errors import Refusal


def folder(path: Path) -> Path:
    """The folder, made where it is not there, and closed to others.

    Raises:
        Refusal: if it is another user's, who could read the files, or not a folder.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        what = "a folder" if stat.S_ISDIR(found.st_mode) else "a link"
        raise Refusal(
            f"{path}: found {what} of user {found.st_uid}, expected a folder of your own (user {os.geteuid()}); "
            "remove it, or name another place"
        )
    path.chmod(0o700)
    return path


def write(file: Path, text: str) -> None:
    """A new file with that text, replacing an existing one: processes that have the old one open cannot read it."""
    with suppress(FileNotFoundError):
        file.unlink()
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as stream:
        stream.write(text)
