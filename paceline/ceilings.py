"""The most samples that a rank's memory holds, learned by running short of it, and kept for the process after this one.

A rank that runs out of memory ends: its gradient is missing in a sum that the others wait for. Its launcher starts all
of them again on the same machines, so what was learned lies in a file of this user in the folder for temporary files.
"""

import os
import stat
import tempfile
from pathlib import Path
from typing import Final

MOST: Final = 10**9


class Ceiling:
    """That of one rank of one job; 0 samples: not known.

    Args:
        job: of whom it is kept; None: it is not kept.
    """

    def __init__(self, job: str | None, rank: int, *, folder: Path | None = None) -> None:
        folder = folder or Path(tempfile.gettempdir())
        owner = os.getuid() if hasattr(os, "getuid") else 0
        self._file = None if job is None else folder / f"paceline-{owner}-{job}-{rank}.ceiling"
        self.samples = self._read()

    def ran_short(self, samples: int, multiple: int) -> None:
        """So many samples did not fit: half of them is the most from now on."""
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
