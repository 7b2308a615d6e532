"""Points at which a process may die, by name, so that tests can kill it there instead of at some time.

Nothing happens here in production: a point is reached, and nobody has armed it.
"""

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
    "ingest.read",
    "ingest.written",
    "ingest.committed",
    "ingest.trimmed",
)

_armed: dict[str, Callable[[], None]] = {}


def reach(point: str) -> None:
    """Do what the point is armed with, if anything."""
    if _armed and (action := _armed.get(point)):
        action()


@contextmanager
def armed(point: str, action: Callable[[], None]) -> Iterator[None]:
    """While entered, reaching ``point`` does ``action``."""
    if point not in POINTS:
        raise KeyError(f"fault point {point!r}: expected one of {', '.join(POINTS)}")
    _armed[point] = action
    try:
        yield
    finally:
        del _armed[point]
