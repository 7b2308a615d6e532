"""What people read stays for a while before it says something else. Pure: the time is passed in.

Judgements of the latest iterations flip where they lie at a border. One that was shown stays for ``HOLD_S``, or for as
long as the new one has not been seen for ``SURE_S``; its numbers go on being renewed while it holds.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

HOLD_S: Final = 15.0
"""A judgement changes at most once in so long."""

SURE_S: Final = 5.0
"""Another one has to be seen all the time for so long before it is shown."""

SLACK: Final = 1.5
"""A row that is shown stays among so many times the rows that there is room for."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown(Generic[T]):
    """A judgement on the page, and another one that may follow it."""

    kind: Hashable
    """What makes it another judgement; its numbers do not."""
    value: T
    since_s: float
    other: Hashable = None
    other_since_s: float = 0.0


def hold(before: Shown[T] | None, kind: Hashable, value: T, now_s: float) -> Shown[T]:
    """What is to be shown at ``now_s``, when the latest judgement is ``value``."""
    if before is None:
        return Shown(kind=kind, value=value, since_s=now_s)
    if kind == before.kind:
        return Shown(kind=kind, value=value, since_s=before.since_s)
    seen_s = before.other_since_s if before.other == kind else now_s
    if now_s - before.since_s >= HOLD_S and now_s - seen_s >= SURE_S:
        return Shown(kind=kind, value=value, since_s=now_s)
    return Shown(kind=before.kind, value=before.value, since_s=before.since_s, other=kind, other_since_s=seen_s)


def keep_rows(before: Iterable[int], order: Mapping[int, float], room: int) -> list[int]:
    """The ``room`` ranks of least ``order``, where who is shown stays as long as it is nearly among them; by rank."""
    ranked = sorted(order, key=lambda rank: (order[rank], rank))
    near = ranked[: round(SLACK * room)]
    kept = [rank for rank in near if rank in set(before)][:room]
    fresh = [rank for rank in ranked if rank not in kept]
    return sorted([*kept, *fresh[: max(0, room - len(kept))]])
