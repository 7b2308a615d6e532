"""Which waiting jobs start now, on which machines, and why the others wait: from the queue, the offers and a time.

Jobs are ordered by priority, then by submission. Jobs behind one that does not fit may start first, until it has waited
for ``PATIENCE_S``: from then on the free slots that it could use are reserved for it. For a job that could not start
even if all slots were free, nothing is reserved.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from controlplane.protocol.orders import Role

PATIENCE_S: Final = 300.0
"""How long later jobs that fit may start before a job that does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A connected machine: its slots, and which of them are free."""

    machine: int
    workers: int
    servers: int
    free_workers: int
    free_servers: int
    labels: Mapping[str, str]
    name: str = ""

    def free(self, role: Role) -> int:
        """Its free slots for such processes."""
        return self.free_workers if role == "worker" else self.free_servers

    def without(self, role: Role) -> "Offer":
        """The offer with one of those slots taken."""
        worker = role == "worker"
        workers, servers = self.free_workers - worker, self.free_servers - (not worker)
        return replace(self, free_workers=workers, free_servers=servers)

    def carries(self, labels: Mapping[str, str]) -> bool:
        """Whether it has every one of these labels with that value."""
        return all(self.labels.get(key) == value for key, value in labels.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRequest:
    """What a waiting job needs before it can start."""

    job: int
    workers: int
    least: int
    """So many workers are enough to begin; it takes up to ``workers``."""
    servers: int
    labels: Mapping[str, str]
    priority: int = 0
    since: float = 0.0
    """When it was submitted, in seconds of the clock of ``now``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Take:
    """Slots of one machine for one job."""

    machine: int
    workers: int
    servers: int


class Outcome(StrEnum):
    """What happens to a waiting job at present."""

    STARTS = "starts"
    WAITS = "waits"
    """There are enough slots, and others hold them."""
    NEVER = "never"
    """Even if all slots were free there would be too few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What happens to one job, and on which machines."""

    request: SlotRequest
    outcome: Outcome
    machines: tuple[int, ...]
    """Those that carry its labels."""
    takes: tuple[Take, ...] = ()
    """Where it starts; or what is kept for it, where it waits."""
    ahead: tuple[int, ...] = ()
    """Jobs before it that can start, now or later, on some of its machines, the first of them first."""

    @property
    def keeps(self) -> bool:
        """Whether free slots are kept for it."""
        return self.outcome is Outcome.WAITS and bool(self.takes)


def place(request: SlotRequest) -> tuple[int, int]:
    """What the queue is sorted by: priority, the highest first, then submission."""
    return -request.priority, request.job


def plan(queue: Iterable[SlotRequest], offers: Sequence[Offer], now: float) -> list[Verdict]:
    """The outcome of each job, in the order of the queue. Machines are filled in the order of ``offers``."""
    left = {offer.machine: (offer.free_workers, offer.free_servers) for offer in offers}
    fitting: dict[frozenset[tuple[str, str]], list[Offer]] = {}
    before: dict[frozenset[tuple[str, str]], list[tuple[int, int]]] = {}
    verdicts = []
    for position, request in enumerate(sorted(queue, key=place)):
        key = frozenset(request.labels.items())
        if key not in fitting:
            fitting[key] = [offer for offer in offers if offer.carries(request.labels)]
        here = fitting[key]
        outcome, takes = _decide(request, here, left, now)
        _claim(takes, left)
        machines = tuple(offer.machine for offer in here)
        ahead = tuple(job for _, job in sorted(_sharing(fitting, before, set(machines))))
        verdicts.append(Verdict(request=request, outcome=outcome, machines=machines, takes=takes, ahead=ahead))
        if outcome is not Outcome.NEVER:
            before.setdefault(key, []).append((position, request.job))
    return verdicts


def _decide(
    request: SlotRequest, here: Sequence[Offer], left: Mapping[int, tuple[int, int]], now: float
) -> tuple[Outcome, tuple[Take, ...]]:
    if sum(offer.workers for offer in here) < request.least or sum(offer.servers for offer in here) < request.servers:
        return Outcome.NEVER, ()
    workers, servers = (sum(left[offer.machine][kind] for offer in here) for kind in (0, 1))
    if workers >= request.least and servers >= request.servers:
        return Outcome.STARTS, _fill(here, left, request.workers, request.servers)
    if now - request.since < PATIENCE_S:
        return Outcome.WAITS, ()
    return Outcome.WAITS, _fill(here, left, request.least, request.servers)


def _fill(here: Sequence[Offer], left: Mapping[int, tuple[int, int]], workers: int, servers: int) -> tuple[Take, ...]:
    """So many slots, or as many as there are left, machine by machine."""
    takes = []
    for offer in here:
        mine = min(workers, left[offer.machine][0]), min(servers, left[offer.machine][1])
        if any(mine):
            takes.append(Take(machine=offer.machine, workers=mine[0], servers=mine[1]))
        workers, servers = workers - mine[0], servers - mine[1]
    return tuple(takes)


def _claim(takes: Iterable[Take], left: dict[int, tuple[int, int]]) -> None:
    for take in takes:
        workers, servers = left[take.machine]
        left[take.machine] = workers - take.workers, servers - take.servers


def _sharing(
    fitting: Mapping[frozenset[tuple[str, str]], Sequence[Offer]],
    before: Mapping[frozenset[tuple[str, str]], Sequence[tuple[int, int]]],
    machines: set[int],
) -> list[tuple[int, int]]:
    """Those before that could take a slot of these machines, with their places."""
    keys = [key for key in before if any(offer.machine in machines for offer in fitting[key])]
    return [each for key in keys for each in before[key]]
