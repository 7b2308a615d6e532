"""Debounces displayed verdicts and rows. Pure: the time is passed in.

Verdicts on the latest iterations flip near a threshold. A displayed verdict stays for ``HOLD_S``, or until
the new one has persisted for ``SURE_S``; its numbers are updated meanwhile.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

HOLD_S: Final = 15.0
"""A verdict changes at most once in this many seconds."""

SURE_S: Final = 5.0
"""Another verdict must hold continuously for this long before it is shown."""

SLACK: Final = 1.5
"""A displayed row stays while it ranks within this many times the number of displayed rows."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown(Generic[T]):
    """The displayed verdict and a candidate that may replace it."""

    kind: Hashable
    """Identifies the verdict; its numbers do not."""
    value: T
    since_s: float
    other: Hashable = None
    other_since_s: float = 0.0


def hold(before: Shown[T] | None, kind: Hashable, value: T, now_s: float) -> Shown[T]:
    """The verdict to show at ``now_s``; ``value`` is the latest one."""
    if before is None:
        return Shown(kind=kind, value=value, since_s=now_s)
    if kind == before.kind:
        return Shown(kind=kind, value=value, since_s=before.since_s)
    seen_s = before.other_since_s if before.other == kind else now_s
    if now_s - before.since_s >= HOLD_S and now_s - seen_s >= SURE_S:
        return Shown(kind=kind, value=value, since_s=now_s)
    return Shown(kind=before.kind, value=before.value, since_s=before.since_s, other=kind, other_since_s=seen_s)


def keep_rows(before: Iterable[int], order: Mapping[int, float], room: int) -> list[int]:
    """The ``room`` ranks with the smallest ``order``, sorted; displayed ranks stay while they are nearly among them."""
    ranked = sorted(order, key=lambda rank: (order[rank], rank))
    near = ranked[: round(SLACK * room)]
    kept = [rank for rank in near if rank in set(before)][:room]
    fresh = [rank for rank in ranked if rank not in kept]
    return sorted([*kept, *fresh[: max(0, room - len(kept))]])
