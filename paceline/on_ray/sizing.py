"""Computes how many agents a fleet should have, from the waiting jobs and the available slots. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """Slots of both kinds: for workers and for parameter servers."""

    workers: int = 0
    servers: int = 0
    scripts: int = 0
    """The worker slots on which a rank of a script can run."""

    def __add__(self, other: "Slots") -> "Slots":
        return Slots(
            workers=self.workers + other.workers,
            servers=self.servers + other.servers,
            scripts=self.scripts + other.scripts,
        )

    def __mul__(self, times: int) -> "Slots":
        return Slots(workers=self.workers * times, servers=self.servers * times, scripts=self.scripts * times)

    def lacks(self, requested: "Slots") -> "Slots":
        """The slots that are missing for ``requested``."""
        return Slots(
            workers=max(0, requested.workers - self.workers),
            servers=max(0, requested.servers - self.servers),
            scripts=max(0, requested.scripts - self.scripts),
        )

    def holds(self, requested: "Slots") -> bool:
        """Whether there are enough slots for ``requested``."""
        return self.lacks(requested) == Slots()


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A waiting job's demand."""

    job: int
    slots: Slots


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """The target number of agents, the jobs it serves, and the jobs that do not fit even into the largest fleet."""

    agents: int
    waiting: tuple[int, ...] = ()
    too_large: tuple[int, ...] = ()


def sizing(needs: Sequence[Need], *, free: Slots, each: Slots, here: int, most: int, elsewhere: Slots) -> Sizing:
    """Return as many agents as the waiting jobs that fit need, in their order; never fewer than ``here``.

    Args:
        needs: the jobs that wait, the first to start first.
        free: slots that no job holds, including those of agents that are about to join.
        each: what one more agent would bring.
        here: agents of the fleet, joined or about to join.
        most: how large it may become.
        elsewhere: slots of other machines, free or not.
    """
    whole = each * most + elsewhere
    requested, agents = Slots(), here
    served, too_large = [], []
    for need in needs:
        if not whole.holds(need.slots):
            too_large.append(need.job)
            continue
        requested += need.slots
        missing = free.lacks(requested)
        served.append(need.job)
        if missing != Slots():
            agents = max(agents, here + _agents_for(missing, each))
    return Sizing(agents=max(here, min(agents, most)), waiting=tuple(served), too_large=tuple(too_large))


def to_leave(
    idle_since: Mapping[int, float], *, now: float, idle_s: float, base: int, waiting: Iterable[int]
) -> tuple[int, ...]:
    """Agents beyond ``base`` that no job has needed for this long; none while a job waits."""
    if any(True for _ in waiting):
        return ()
    return tuple(sorted(index for index, since in idle_since.items() if index >= base and now - since >= idle_s))


def _agents_for(missing: Slots, each: Slots) -> int:
    """Number of agents that provide the missing slots; demand that agents cannot meet is ignored."""
    kinds = ((missing.workers, each.workers), (missing.servers, each.servers), (missing.scripts, each.scripts))
    return max(-(-lacking // one) if one else 0 for lacking, one in kinds)
