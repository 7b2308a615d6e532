"""The most samples that fit into a rank's memory, learned from out-of-memory errors and kept across restarts.

A rank that runs out of memory exits: its gradient is missing in a sum that the other ranks wait for. The launcher then
restarts all ranks on the same machines, so the learned limit is stored in this user's file in the temporary folder.
"""

import os
import stat
import tempfile
from pathlib import Path
from typing import Final

MOST: Final = 10**9


class Ceiling:
    """The ceiling of one rank of one job; 0 samples: not known.

    Args:
        job: the job for which it is stored; None: it is not stored.
    """

    def __init__(self, job: str | None, rank: int, *, folder: Path | None = None) -> None:
        folder = folder or Path(tempfile.gettempdir())
        owner = os.getuid() if hasattr(os, "getuid") else 0
        self._file = None if job is None else folder / f"paceline-{owner}-{job}-{rank}.ceiling"
        self.samples = self._read()

    def ran_short(self, samples: int, multiple: int) -> None:
        """Half of the samples that did not fit become the ceiling."""
        self.samples = max(multiple, samples // 2 // multiple * multiple, 1)
        if self._file is None:
            return
        try:
            self._file.unlink(missing_ok=True)
            file = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(file, "w") as writing:
                writing.write(str(self.samples))
        except OSError:
            return

    def _read(self) -> int:
        if self._file is None:
            return 0
        try:
            file = os.open(self._file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
            with os.fdopen(file) as reading:
                about = os.fstat(reading.fileno())
                if not stat.S_ISREG(about.st_mode) or (hasattr(os, "getuid") and about.st_uid != os.getuid()):
                    return 0
                return min(MOST, max(0, int(reading.read(20))))
        except (OSError, ValueError):
            return 0
