"""The maximum number of samples that fit into a rank's memory, learned from out-of-memory errors.

A rank that runs out of memory exits, since its gradient is missing in a sum for which the other ranks wait. The
launcher then restarts all ranks on the same machines, so the limit is stored in a file of this user in the temporary
folder until the rank has finished its job.
"""

import hashlib
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from paceline.variables import Target

MOST: Final = 10**9


class Ceiling:
    """The limit of one rank of one job; 0 samples: not known.

    Args:
        job: the job for which the limit is stored; None: it is not stored.
    """

    def __init__(self, job: Target | None, rank: int, *, folder: Path | None = None) -> None:
        folder = folder or Path(tempfile.gettempdir())
        self._file = None if job is None else folder / _name(job, rank)
        self.samples = self._read()

    def ran_short(self, samples: int, multiple: int) -> None:
        """Record an out-of-memory error: half of the samples that did not fit become the limit."""
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

    def forget(self) -> None:
        """Remove the file: the job is over."""
        if self._file is not None:
            with suppress(OSError):
                self._file.unlink(missing_ok=True)

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


def _name(job: Target, rank: int) -> str:
    """The name includes the token, since another control plane may have a job of the same
    number at the same address.
    """
    owner = os.getuid() if hasattr(os, "getuid") else 0
    which = hashlib.sha256("\n".join(job).encode()).hexdigest()[:16]
    return f"paceline-{owner}-{job.job}-{which}-{rank}.ceiling"
