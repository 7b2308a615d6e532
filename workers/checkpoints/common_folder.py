"""Whether all servers of a job keep their checkpoints in one folder: each leaves a mark there and looks for others.

A folder that is shared over a network may show others' writes with a delay, so this is waited for, in addition to
everything else.
"""

import os
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

MARKS: Final = "servers"
WAIT_S = 60.0
"""Network file systems keep the list of a folder for half a minute or more."""

LOOK_S: Final = 0.1


class CommonFolder:
    """One server's look at it.

    Args:
        folder: where it keeps the checkpoints of its job.
        instance: its name.
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
        """Look for the marks of these servers, those that were not looked for before."""
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
        """Listed, not requested by name: that an entry is not there is remembered by network file systems."""
        try:
            return set(os.listdir(self._marks))
        except OSError:
            return set()
