"""How large the pieces are in which interruptible work is done: the smallest whose measured overhead is small.

A stop order is obeyed between two pieces, so small ones stop soon; but each costs its own fixed time.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

MOST_OVERHEAD = 0.1
"""How much longer the whole may take in pieces than at once."""

LEAST_S = 0.0005
"""The least duration of a piece: a stop order takes longer to arrive."""

LEAST_EMULATED_S = 0.02
"""The same on an emulated machine: the sleep after each piece ends late, by up to a scheduler's time slice."""

MOST_REAL = 0.25
"""Of a piece's emulated time may its real work take, so that the rest of it makes up for what comes late."""

REPEATS = 5
"""The shortest of each measurement counts: disturbances only make it longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A size of pieces, and what was measured of it."""

    samples: int
    whole: int
    overhead: float


def choose(
    work: Callable[[int], object],
    whole: int,
    *,
    least_s: Callable[[int], float] = lambda samples: 0.0,
    now: Callable[[], float] = time.thread_time,
) -> Size:
    """The smallest power of two whose overhead over ``whole`` samples at once is at most ``MOST_OVERHEAD``.

    Args:
        work: does the real work on so many samples.
        whole: a usual share, at least 1.
        least_s: how long so many samples take at least, since the machine is emulated.
        now: the clock that it is timed with, in seconds; by default the thread's CPU clock, which stops while
            others have the processor. Processes of a job compute on one thread.
    """

    def worked_s(samples: int) -> float:
        times = []
        for _ in range(REPEATS):
            began = now()
            work(samples)
            times.append(now() - began)
        return min(times)

    worked_s(min(whole, 1))  # warm-up: work that is done on first use only
    at_once_s = max(worked_s(whole), least_s(whole))
    best = Size(samples=whole, whole=whole, overhead=0.0)
    samples = 1 << ((whole - 1).bit_length() - 1) if whole > 1 else 0
    while samples >= 1:
        real_s, emulated_s = worked_s(samples), least_s(samples)
        piece_s = max(real_s, emulated_s)
        overhead = piece_s * (whole / samples) / at_once_s - 1.0 if at_once_s > 0 else 0.0
        if overhead > MOST_OVERHEAD or not _is_worth_its_time(real_s, emulated_s):
            break
        best = Size(samples=samples, whole=whole, overhead=max(0.0, overhead))
        samples //= 2
    return best


def _is_worth_its_time(real_s: float, emulated_s: float) -> bool:
    """Whether a piece is long enough to end for, and its real work hidden in its emulated time, if it has one."""
    if emulated_s <= 0.0:
        return real_s >= LEAST_S
    return emulated_s >= LEAST_EMULATED_S and real_s <= MOST_REAL * emulated_s
