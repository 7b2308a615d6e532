"""The state of a fleet of agents, and the thread that polls it."""

import logging
import threading
from collections.abc import Callable
from typing import Final

import msgspec

ROUND_S: Final = 1.0

log = logging.getLogger("paceline")


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One agent of the fleet."""

    name: str
    state: str
    """``unplaced``: Ray has no room; ``moving``: its node is gone; ``failed``: its actor cannot start; otherwise as
    the actor reports."""
    node: str = ""
    host: str = ""
    starts: int = 0
    last: str = ""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """The fleet at one moment."""

    agents: int
    most: int
    wanted: int
    members: list[Member]
    waiting: list[int] = []
    """Jobs for which it grows."""
    too_large: list[int] = []
    trouble: str = ""
    """Why the waiting jobs are unknown."""
    stale: str = ""
    """The error of the last poll, if this state is older."""

    @property
    def connected(self) -> int:
        """Agents that are connected to the control plane."""
        return sum(member.state == "connected" for member in self.members)


class Watch:
    """Polls a fleet until it is ended, ignoring errors, then stops the fleet."""

    def __init__(self, look: Callable[[], View], end: Callable[[], None], *, round_s: float = ROUND_S) -> None:
        self._look, self._end, self._round_s = look, end, round_s
        self.view = look()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fleet", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop the fleet; returns when that is done."""
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.wait(self._round_s):
            try:
                self.view = self._look()
            except Exception as error:  # nothing else replaces agents or grows the fleet
                log.exception("paceline: a look at the agents failed, another follows")
                self.view = msgspec.structs.replace(self.view, stale=f"{type(error).__name__}: {error}")
        self._end()
