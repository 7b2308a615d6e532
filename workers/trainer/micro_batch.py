"""Chooses the micro-batch size of interruptible work: the smallest with a low measured overhead.

A stop order takes effect between two micro-batches, so small ones stop soon; but each has a fixed cost.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

MOST_OVERHEAD = 0.1
"""Maximum relative overhead of micro-batches."""

LEAST_S = 0.0005
"""Minimum duration of a micro-batch: a stop order takes longer to arrive."""

LEAST_EMULATED_S = 0.02
"""The same on an emulated machine: the sleep after each micro-batch ends late, by up to a scheduler's time slice."""

MOST_REAL = 0.25
"""Maximum fraction of a micro-batch's emulated time for its real work, so that the rest
compensates for late wake-ups.
"""

REPEATS = 5
"""The minimum of this many measurements is used: disturbances only make them longer."""


def running_s() -> float:
    """Return the time of this thread in seconds, without the time that it was ready and had no processor.

    Waiting for a device and sleeping count. If the kernel does not report it, this is the thread's CPU time. Processes
    of a job compute on one thread.
    """
    try:
        with open("/proc/thread-self/schedstat") as file:
            queued_ns = int(file.read().split()[1])
    except (OSError, IndexError):
        return time.thread_time()
    return time.perf_counter() - queued_ns * 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A micro-batch size with its measurements."""

    samples: int
    whole: int
    overhead: float


def choose(
    work: Callable[[int], object],
    whole: int,
    *,
    least_s: Callable[[int], float] = lambda samples: 0.0,
    now: Callable[[], float] = running_s,
) -> Size:
    """Return the smallest power of two whose overhead over ``whole`` samples at once is at most ``MOST_OVERHEAD``.

    Args:
        work: processes the given number of samples.
        whole: a usual share, at least 1.
        least_s: minimum duration for a number of samples, on an emulated machine.
        now: the clock in seconds; by default ``running_s``.
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
    """Whether a micro-batch is long enough, and its real work fits into its emulated time, if there is one."""
    if emulated_s <= 0.0:
        return real_s >= LEAST_S
    return emulated_s >= LEAST_EMULATED_S and real_s <= MOST_REAL * emulated_s
