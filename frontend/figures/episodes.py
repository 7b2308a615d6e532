"""Groups consecutive share changes into episodes and measures their joint effect. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

APART: Final = 20
"""Maximum number of iterations between two changes of an episode: after a longer gap the shares had settled."""

AROUND: Final = 10
"""Iterations before and after an episode in which its effect is measured."""

MATTERS: Final = 0.05
"""The smallest significant effect, as a fraction of the iteration time."""

Mean = Callable[[int, int], float | None]
"""The mean length of an iteration, in seconds, over ``[first, last)``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One decision about shares, from the log."""

    incarnation: int
    sequence: int
    generation: int
    iteration: int
    shares: Mapping[int, int]
    reason: str

    @property
    def before(self) -> int:
        """The value of ``before`` in the URL with which the log starts at this decision."""
        return self.sequence + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """Consecutive changes of one generation, oldest first."""

    changes: tuple[Change, ...]
    rank: int
    """The worker whose share changed most, relative to its earlier share."""
    was: int
    now: int
    before_s: float | None
    after_s: float | None

    @property
    def first(self) -> Change:
        """Its first change."""
        return self.changes[0]

    @property
    def last(self) -> Change:
        """Its last change."""
        return self.changes[-1]

    @property
    def times(self) -> float | None:
        """The speed-up of iterations; below 1 if they became slower."""
        return self.before_s / self.after_s if self.before_s and self.after_s else None

    @property
    def matters(self) -> bool:
        """Whether the iteration time changed significantly."""
        return self.times is not None and abs(1 - 1 / self.times) >= MATTERS


def fold(changes: Sequence[Change], mean: Mean) -> list[Episode]:
    """The episodes of ``changes``, which are in the order of the log; newest first.

    The first change of a generation starts a new episode. It is compared with the shares of the previous change if that
    had the same workers.
    """
    groups: list[list[Change]] = []
    for change in changes:
        if groups and _follows(groups[-1][-1], change):
            groups[-1].append(change)
        else:
            groups.append([change])
    episodes = []
    for place, group in enumerate(groups):
        earlier = groups[place - 1][-1] if place else None
        start = earlier if earlier is not None and earlier.shares.keys() == group[0].shares.keys() else group[0]
        since = earlier.iteration if earlier is not None else 0
        until = groups[place + 1][0].iteration if place + 1 < len(groups) else group[-1].iteration + AROUND
        moved = _most_moved(start.shares, group[-1].shares)
        if moved is None:
            continue
        episodes.append(
            Episode(
                changes=tuple(change for change in group if change is not start),
                rank=moved,
                was=start.shares[moved],
                now=group[-1].shares[moved],
                before_s=mean(max(since, _first(group, start) - AROUND), _first(group, start)),
                after_s=mean(group[-1].iteration, min(until, group[-1].iteration + AROUND)),
            )
        )
    return episodes[::-1]


def last_that_mattered(episodes: Sequence[Episode]) -> Episode | None:
    """The newest episode with a significant effect; ``episodes`` are newest first."""
    return next((episode for episode in episodes if episode.matters), None)


def _follows(earlier: Change, later: Change) -> bool:
    same = (earlier.incarnation, earlier.generation) == (later.incarnation, later.generation)
    return same and later.iteration - earlier.iteration <= APART


def _first(group: Sequence[Change], start: Change) -> int:
    """The first iteration with changed shares."""
    return next(change.iteration for change in group if change is not start)


def _most_moved(was: Mapping[int, int], now: Mapping[int, int]) -> int | None:
    moved = {rank: abs(now[rank] - was[rank]) / max(1, was[rank]) for rank in was if was[rank] != now.get(rank)}
    known = {rank: part for rank, part in moved.items() if rank in now}
    return max(known, key=lambda rank: (known[rank], -rank)) if known else None
