"""Decides which waiting jobs start now and on which machines, and why the others wait: values in, verdicts out.

Jobs are ordered by priority, then an operator's order, then submission; the jobs of several teams by ``fair_share``.
Jobs behind one that does not fit may start first, until it has waited
for ``PATIENCE_S``: from then on the free slots that it could use are reserved for it. For a job that could not start
even if all slots were free, nothing is reserved.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from controlplane.protocol.orders import Role

PATIENCE_S: Final = 300.0
"""How long jobs that fit may overtake a job that does not."""


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
    team: int = 0
    """The owning team: the machine runs only its jobs; 0: no team, it runs all jobs."""
    scripts: bool = False
    """Whether its agent starts scripts of jobs."""

    def free(self, role: Role) -> int:
        """Its free slots for processes of this role."""
        return self.free_workers if role == "worker" else self.free_servers

    def without(self, role: Role) -> "Offer":
        """The offer with one slot less for this role."""
        worker = role == "worker"
        workers, servers = self.free_workers - worker, self.free_servers - (not worker)
        return replace(self, free_workers=workers, free_servers=servers)

    def accepts(self, labels: Mapping[str, str], team: int, *, script: bool = False) -> bool:
        """Whether the machine accepts jobs of this team with such labels, and with a script if they have one."""
        return self.team in (0, team) and self.carries(labels) and (self.scripts or not script)

    def carries(self, labels: Mapping[str, str]) -> bool:
        """Whether the machine has all these labels, with these values."""
        return all(self.labels.get(key) == value for key, value in labels.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRequest:
    """The slots and machines that a waiting job needs before it can start."""

    job: int
    workers: int
    least: int
    """Fewest workers with which it starts; it uses up to ``workers``."""
    servers: int
    labels: Mapping[str, str]
    priority: int = 0
    since: float = 0.0
    """When it was submitted, in seconds of the clock of ``now``."""
    order: int = 0
    """The position that an operator gave it among jobs of its priority; the lowest is first."""
    team: int = 0
    """The owning team; 0: none."""
    subjects: tuple[str, ...] = ()
    """Subjects with quotas of slots that apply, such as ``user ada`` and ``team vision``."""
    script: bool = False
    """Whether its workers are processes of a script, which not every agent starts."""

    def fits(self, offer: Offer) -> bool:
        """Whether the machine accepts the job, regardless of free slots."""
        return offer.accepts(self.labels, self.team, script=self.script)


@dataclass(frozen=True, slots=True, kw_only=True)
class Take:
    """Slots of one machine for one job."""

    machine: int
    workers: int
    servers: int


class Outcome(StrEnum):
    """The present state of a waiting job."""

    STARTS = "starts"
    WAITS = "waits"
    """There are enough slots, but others hold them."""
    NEVER = "never"
    """Even if all slots were free there would be too few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The plan for one job, and its machines."""

    request: SlotRequest
    outcome: Outcome
    machines: tuple[int, ...]
    """Machines that have its labels."""
    takes: tuple[Take, ...] = ()
    """The slots that it starts on; for a waiting job, the slots that are reserved for it."""
    ahead: tuple[int, ...] = ()
    """Jobs ahead that can start, now or later, on some of its machines, in the order of the queue."""
    bound: str = ""
    """The subject with a quota of slots that prevents the start; empty: none."""

    @property
    def keeps(self) -> bool:
        """Whether free slots are reserved for it."""
        return self.outcome is Outcome.WAITS and bool(self.takes)


def place(request: SlotRequest) -> tuple[int, int, int]:
    """The sort key of the queue: priority, the highest first, an operator's order, then submission."""
    return -request.priority, request.order, request.job


Order = Callable[[Sequence[SlotRequest]], Sequence[SlotRequest]]


def by_place(queue: Sequence[SlotRequest]) -> list[SlotRequest]:
    """The requests in the order of ``place``."""
    return sorted(queue, key=place)


def plan(
    queue: Iterable[SlotRequest],
    offers: Sequence[Offer],
    now: float,
    *,
    order: Order = by_place,
    room: Mapping[str, int] = MappingProxyType({}),
) -> list[Verdict]:
    """The verdict on each job, in the order of the queue. Machines are filled in the order of ``offers``.

    ``room`` has the remaining slots of each subject's quota; a subject without a quota is omitted.
    """
    rest = dict(room)
    left = {offer.machine: (offer.free_workers, offer.free_servers) for offer in offers}
    fitting: dict[Kind, list[Offer]] = {}
    before: dict[Kind, list[tuple[int, int]]] = {}
    verdicts = []
    for position, request in enumerate(order(list(queue))):
        key = request.team, frozenset(request.labels.items()), request.script
        if key not in fitting:
            fitting[key] = [offer for offer in offers if request.fits(offer)]
        here = fitting[key]
        outcome, takes = _decide(request, here, left, now)
        bound = _bound(request, rest) if outcome is not Outcome.NEVER else ""
        if bound:
            outcome, takes = Outcome.WAITS, ()
        elif outcome is Outcome.STARTS:
            takes = _within(request, here, left, rest)
            _charge(request, takes, rest)
        _claim(takes, left)
        machines = tuple(offer.machine for offer in here)
        ahead = tuple(job for _, job in sorted(_sharing(fitting, before, set(machines))))
        verdicts.append(
            Verdict(request=request, outcome=outcome, machines=machines, takes=takes, ahead=ahead, bound=bound)
        )
        if outcome is not Outcome.NEVER and not bound:
            before.setdefault(key, []).append((position, request.job))
    return verdicts


Kind = tuple[int, frozenset[tuple[str, str]], bool]
"""Team, labels, and whether it has a script: jobs of one kind are accepted by the same machines."""


def _bound(request: SlotRequest, rest: Mapping[str, int]) -> str:
    """The subject with too few remaining slots for the job's minimum; empty if there is none."""
    needed = request.least + request.servers
    return next((each for each in request.subjects if rest.get(each, needed) < needed), "")


def _within(
    request: SlotRequest, here: Sequence[Offer], left: Mapping[int, tuple[int, int]], rest: Mapping[str, int]
) -> tuple[Take, ...]:
    """The slots that the job starts on, with no more workers than every quota allows."""
    allowed = min([request.workers, *(rest[each] - request.servers for each in request.subjects if each in rest)])
    return _fill(here, left, allowed, request.servers)


def _charge(request: SlotRequest, takes: Iterable[Take], rest: dict[str, int]) -> None:
    used = sum(take.workers + take.servers for take in takes)
    for each in request.subjects:
        if each in rest:
            rest[each] -= used


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
    """Take up to that many slots, machine by machine."""
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
    fitting: Mapping[Kind, Sequence[Offer]],
    before: Mapping[Kind, Sequence[tuple[int, int]]],
    machines: set[int],
) -> list[tuple[int, int]]:
    """Jobs ahead that could take a slot of these machines, with their places."""
    keys = [key for key in before if any(offer.machine in machines for offer in fitting[key])]
    return [each for key in keys for each in before[key]]
