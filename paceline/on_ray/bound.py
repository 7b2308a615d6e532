"""``python -m paceline.on_ray.bound PARENT COMMAND ...``: runs the command; the kernel kills it when its parent ends.

If a raylet dies, its actors' processes end without notifying their children. This is a separate program, since a
process with as many threads as Ray's must not run Python between fork and exec.
"""

import ctypes
import os
import signal
import sys
from typing import Final

PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    """Replace this process by the command, unless the parent (a process id) has already ended."""
    parent = int(sys.argv[1])
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:
            sys.exit(1)
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
