"""Waiting for what other processes do: polled, with a deadline, and with the subject named when it passes."""

import os
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


MOST = 3.0
"""A deadline is not more than so many times what it is on an idle machine."""


def slowness(*, load: float | None = None, cores: int | None = None) -> float:
    """How many times longer things may take here, by how many processes share a core; 1 on an idle machine."""
    sharing = (os.getloadavg()[0] if load is None else load) / (cores or os.cpu_count() or 1)
    return min(MOST, max(1.0, sharing))


LOOKING = 0.2
"""At most this part of the time is spent looking: what is waited for needs the processor, too."""
LONGEST_S = 1.0


def rest_s(took_s: float, every: float) -> float:
    """The interval before the next look, after one that took so long."""
    return max(every, min(LONGEST_S, took_s * (1.0 / LOOKING - 1.0)))


def eventually(look: Callable[[], Found], *, what: str, seconds: float = 60.0, every: float = 0.02) -> Found:
    """The first true value of ``look()``; fails the test after ``seconds`` of an idle machine, later on a busy one."""
    began = time.monotonic()
    while True:
        looked = time.monotonic()
        if found := look():
            return found
        now = time.monotonic()
        if (waited := now - began) > seconds * slowness():
            raise AssertionError(f"{what}: not within {waited:.0f} s ({seconds:g} s on an idle machine)")
        time.sleep(rest_s(now - looked, every))
