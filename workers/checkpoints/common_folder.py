"""Checks that all servers of a job store checkpoints in one folder: each writes a marker file and looks for the
others'.

A network file system may show other machines' writes with a delay, so the check waits before it fails.
"""

import os
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

MARKS: Final = "servers"
WAIT_S = 60.0
"""Network file systems may cache directory listings for half a minute or more."""

LOOK_S: Final = 0.1


class CommonFolder:
    """The check by one server.

    Args:
        folder: where it stores the checkpoints of its job.
        instance: the server's instance name.
        say: called with the reason if the folder cannot be used.
    """

    def __init__(self, folder: Path, instance: str, say: Callable[[str], None]) -> None:
        self._marks, self._say = folder / MARKS, say
        self._folder = folder
        self._compared = {instance}
        self._failure = ""
        try:
            self._marks.mkdir(parents=True, exist_ok=True)
            (self._marks / instance).touch()
        except OSError as error:
            self._failure = f"checkpoints cannot be written to {folder}: {error.strerror}"

    def compare(self, instances: Collection[str]) -> None:
        """Look for the markers of these servers, except those already looked for."""
        new = set(instances) - self._compared
        self._compared |= new
        if self._failure:
            failure, self._failure = self._failure, ""
            self._say(failure)
        elif new:
            threading.Thread(target=self._look_for, args=(new,), name="common-folder", daemon=True).start()

    def _look_for(self, instances: set[str]) -> None:
        never = threading.Event()
        for _ in range(max(1, round(WAIT_S / LOOK_S))):
            missing = instances - self._seen()
            if not missing:
                return
            never.wait(LOOK_S)
        named = ", ".join(sorted(missing))
        self._say(
            f"its folder for checkpoints, {self._folder}, is not that of {named}: no mark of theirs is there. Give all "
            "agents that run servers the same shared folder with --checkpoint-dir"
        )

    def _seen(self) -> set[str]:
        """By listing the folder: network file systems cache that a requested name does not exist."""
        try:
            return set(os.listdir(self._marks))
        except OSError:
            return set()
