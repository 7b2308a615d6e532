"""Computes the recent waiting share of a job's workers from cumulative sums. Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec

WINDOW_S: Final = 30.0
"""Minimum length of the measured window."""


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """The sums at the start of the current window, and the share over the previous one."""

    at_s: float
    waiting_s: float
    whole_s: float
    share: float | None = None


def advanced(marks: Mapping[int, Mark], sums: Mapping[int, tuple[float, float]], now_s: float) -> dict[int, Mark]:
    """The new marks of jobs; ``sums`` has waiting and total time of each job's workers."""
    return {job: _advanced(marks.get(job), *found, now_s) for job, found in sums.items()}


def _advanced(mark: Mark | None, waiting_s: float, whole_s: float, now_s: float) -> Mark:
    new = Mark(at_s=now_s, waiting_s=waiting_s, whole_s=whole_s)
    if mark is None or whole_s < mark.whole_s or waiting_s < mark.waiting_s:
        return new
    if now_s - mark.at_s < WINDOW_S or whole_s == mark.whole_s:
        return mark
    return msgspec.structs.replace(new, share=(waiting_s - mark.waiting_s) / (whole_s - mark.whole_s))
