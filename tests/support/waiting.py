"""Waiting for what other processes do: polled, with a deadline, and with the subject named when it passes."""

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def eventually(look: Callable[[], Found], *, what: str, seconds: float = 60.0, every: float = 0.02) -> Found:
    """The first true value of ``look()``; fails the test after ``seconds``."""
    deadline = time.monotonic() + seconds
    while True:
        if found := look():
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(every)
