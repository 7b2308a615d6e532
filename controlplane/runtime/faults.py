"""Named points at which tests can kill a process.

In production no point is armed. ``PACELINE_FAULT=point:count`` kills the process when it reaches the point for the
count-th time, as ``manage.py bench faults`` does.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

POINTS: Final = (
    "coordinator.taken",
    "coordinator.restored",
    "coordinator.read",
    "coordinator.handled",
    "coordinator.committed",
    "coordinator.ticked",
    "coordinator.drained",
    "coordinator.idle",
    "recovery.replayed",
    "recovery.begun",
    "ingest.read",
    "ingest.written",
    "ingest.committed",
    "ingest.folded",
    "ingest.trimmed",
    "lines.written",
    "lines.committed",
    "gateway.received",
    "gateway.appended",
)

_armed: dict[str, Callable[[], None]] = {}


class _Countdown:
    """Kills this process at the ``count``-th call."""

    def __init__(self, count: int) -> None:
        self._left = count

    def __call__(self) -> None:
        self._left -= 1
        if self._left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


if _chosen := os.environ.get("PACELINE_FAULT", ""):
    _point, _, _count = _chosen.partition(":")
    _armed[_point] = _Countdown(int(_count or 1))


def reach(point: str) -> None:
    """Run the action that the point is armed with, if any."""
    if _armed and (action := _armed.get(point)):
        action()


@contextmanager
def armed(point: str, action: Callable[[], None]) -> Iterator[None]:
    """Context in which reaching ``point`` runs ``action``."""
    if point not in POINTS:
        raise KeyError(f"fault point {point!r}: expected one of {', '.join(POINTS)}")
    _armed[point] = action
    try:
        yield
    finally:
        del _armed[point]
