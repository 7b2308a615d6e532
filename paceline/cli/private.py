"""Folders and files that only their owner can read, even if they existed before."""

import os
import stat
from contextlib import suppress
from pathlib import Path

from paceline.cli.errors import Refusal


def folder(path: Path) -> Path:
    """Create the folder if it does not exist, and remove the permissions of other users.

    Raises:
        Refusal: if it belongs to another user, who could read the files, or is not a folder.
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
    """Write a new file with that text. An existing file is replaced, so that processes which have it open cannot read
    the text.
    """
    with suppress(FileNotFoundError):
        file.unlink()
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as stream:
        stream.write(text)
