"""How many of a process's coordinators may wait for further entries, which keeps their jobs in this process.

Waiting is cheap, and a job that is given up costs a Celery task at its next entry. But a job that stays cannot go to
another process: so, if this process is busy and there is another one, only a few may.
"""

import time
from collections.abc import Callable
from threading import Lock
from typing import Final

WHEN_BUSY: Final = 6
"""Places of a busy process."""

BUSY: Final = 0.7
"""Part of a core that a busy process takes: above that, queues grow fast."""

WINDOW_S: Final = 1.0


class Load:
    """Whether this process was busy in the last second or so, and others could help."""

    def __init__(self, has_others: Callable[[], bool]) -> None:
        self._has_others = has_others
        self._at_s, self._cpu_s = time.monotonic(), time.process_time()
        self._is_busy = False

    def __call__(self) -> bool:
        """Whether it was."""
        now_s = time.monotonic()
        if (passed_s := now_s - self._at_s) >= WINDOW_S:
            cpu_s = time.process_time()
            self._is_busy = cpu_s - self._cpu_s > BUSY * passed_s and self._has_others()
            self._at_s, self._cpu_s = now_s, cpu_s
        return self._is_busy


class Places:
    """Counts the coordinators that wait. Thread-safe."""

    def __init__(self, most: int, is_busy: Callable[[], bool]) -> None:
        self.most = most
        self._is_busy = is_busy
        self._taken = 0
        self._lock = Lock()

    def hold(self, has: bool) -> bool:
        """Whether the caller has a place from now on: take one, or keep it or give it up if it ``has`` one."""
        with self._lock:
            limit = min(self.most, WHEN_BUSY) if self._is_busy() else self.most
            if has and self._taken > limit:
                self._taken -= 1
                return False
            if not has and self._taken < limit:
                self._taken += 1
                return True
            return has

    def release(self) -> None:
        """Give up the caller's place."""
        with self._lock:
            self._taken -= 1
