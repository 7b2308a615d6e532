"""How large the pieces are in which interruptible work is done: the smallest whose measured overhead is small.

A stop order is obeyed between two pieces, so small ones stop soon; but each costs a fixed time of its own.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

MOST_OVERHEAD = 0.1
"""So much longer than at once may the whole take in pieces."""

LEAST_S = 0.0005
"""Smaller pieces than this need not be: a stop order is longer on its way."""

REPEATS = 5
"""Of each measurement the shortest counts: whatever disturbs makes it longer."""


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
        now: the clock that it is timed with, in seconds; by default the thread's own, which stands still while
            others have the processor. Processes of a job compute on one thread.
    """

    def took_s(samples: int) -> float:
        times = []
        for _ in range(REPEATS):
            began = now()
            work(samples)
            times.append(now() - began)
        return max(min(times), least_s(samples))

    took_s(min(whole, 1))  # whatever is done on first use only
    at_once_s = took_s(whole)
    best = Size(samples=whole, whole=whole, overhead=0.0)
    samples = 1 << (whole.bit_length() - 1)
    while samples >= 1:
        piece_s = took_s(samples)
        overhead = piece_s * (whole / samples) / at_once_s - 1.0 if at_once_s > 0 else 0.0
        if samples < whole and (overhead > MOST_OVERHEAD or piece_s < LEAST_S):
            break
        if samples < whole:
            best = Size(samples=samples, whole=whole, overhead=max(0.0, overhead))
        samples //= 2
    return best
