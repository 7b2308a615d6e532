"""Decides which processes leave a drained machine, in which order, and where they could go: values in, steps out.

A worker is drained from its job and then included again, so that it starts on another machine. A server
leaves once another one was added for it, or at once if the job has others and no slot is free. As many workers of a
job leave at a time as it can spare.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Literal

from controlplane.protocol.orders import Role
from controlplane.scheduling.queueing import Offer

WORKER_MOVE_S: Final = 25.0
SERVER_MOVE_S: Final = 20.0
"""Default duration of a move, until one was measured: workers leave up to 15 s after the request, then start."""

ASK_AGAIN_S: Final = 20.0
"""A request that was declined, or had no effect, is repeated after this time."""


class Stage(StrEnum):
    """The progress of one process's move."""

    STAYS = "stays"
    """No move was requested, since its job cannot spare it now."""
    ADDING = "adding"
    """Another server was requested in its place."""
    LEAVING = "leaving"
    RETURNING = "returning"
    """A worker has left and was included again: it waits for a slot, or starts."""
    MOVED = "moved"
    GONE = "gone"
    """It left without a replacement: its job ended, or has other servers."""


OPEN_STAGES: Final = (Stage.STAYS, Stage.ADDING, Stage.LEAVING, Stage.RETURNING)
Ask = Literal["drain", "include", "add"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """A process that has a slot on the machine, or has left it and does not run elsewhere yet."""

    role: Role
    index: int
    stage: Stage | None = None
    """None: it is new here."""
    waited_s: float = 0.0
    """Time since the last request about it."""
    declined: bool = False
    """Whether the engine declined that request."""
    runs_here: bool = True
    holds_here: bool = True
    """Whether its slot here is still held."""
    runs_elsewhere: bool = False
    servers_before: int = 0
    """For a server with a requested replacement: the number of servers elsewhere at the time of the request."""

    @property
    def title(self) -> str:
        """``w3`` or ``s0``."""
        return f"{self.role[:1]}{self.index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A job with processes on the machine."""

    job: int
    residents: tuple[Resident, ...]
    runs: bool
    """Whether the job accepts requests: it runs or is paused."""
    is_over: bool = False
    is_readable: bool = True
    """Whether this release reads its stored spec."""
    least: int = 1
    """Fewest workers with which the job continues."""
    workers: int = 0
    servers: int = 0
    """Its live servers, here and elsewhere."""
    free_servers: int = 0
    """Free server slots elsewhere that it could use."""
    labels: Mapping[str, str] | None = None
    team: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The next step of one process: its new stage, and the request to its job."""

    resident: Resident
    stage: Stage
    ask: Ask | None = None
    why: str = ""


ONLY_WORKER: Final = "its job needs it: it has no worker to spare"
ONLY_SERVER: Final = "its job has no other server, and no server slot is free on another machine"
UNREADABLE: Final = "this release refuses the stored spec of its job: it stays until that job is stopped"
NOT_RUNNING: Final = "its job is about to start or to end"


def next_steps(tenant: Tenant) -> list[Step]:
    """The next step of each process of one job; processes without a step now are omitted."""
    if tenant.is_over:
        return [Step(resident=each, stage=Stage.GONE) for each in tenant.residents]
    steps = [step for each in tenant.residents if (step := _onward(each)) is not None]
    settled = {step.resident.title for step in steps}
    idle = [each for each in tenant.residents if each.title not in settled and _may_ask(each)]
    return steps + _workers(tenant, idle) + _servers(tenant, idle)


def _onward(each: Resident) -> Step | None:
    """The next step of a process whose move was requested and that has left; None if there is none."""
    if each.stage is Stage.LEAVING and not each.runs_here and not each.holds_here:
        if each.role == "worker":
            return Step(resident=each, stage=Stage.RETURNING, ask="include")
        return Step(resident=each, stage=Stage.MOVED)
    if each.stage is Stage.RETURNING:
        if each.runs_elsewhere:
            return Step(resident=each, stage=Stage.MOVED)
        if each.declined and each.waited_s >= ASK_AGAIN_S:
            return Step(resident=each, stage=Stage.RETURNING, ask="include")
    return None


def _may_ask(each: Resident) -> bool:
    if each.stage in (Stage.LEAVING, Stage.RETURNING):
        return each.stage is Stage.LEAVING and each.declined and each.waited_s >= ASK_AGAIN_S
    return each.runs_here


def _workers(tenant: Tenant, idle: Sequence[Resident]) -> list[Step]:
    waiting = [each for each in idle if each.role == "worker"]
    leaving = sum(
        each.role == "worker" and each.stage is Stage.LEAVING and each not in waiting for each in tenant.residents
    )
    spare = max(0, tenant.workers - leaving - max(1, tenant.least)) if tenant.runs else 0
    why = ONLY_WORKER if tenant.runs else NOT_RUNNING
    asked = [Step(resident=each, stage=Stage.LEAVING, ask="drain") for each in waiting[:spare]]
    stays = [Step(resident=each, stage=Stage.STAYS, why=why) for each in waiting[spare:]]
    return asked + [step for step in stays if step.resident.stage is not Stage.STAYS]


def _servers(tenant: Tenant, idle: Sequence[Resident]) -> list[Step]:
    """The steps of servers, one server at a time, since only one server's blocks move at a time."""
    waiting = [each for each in idle if each.role == "server"]
    if not waiting:
        return []
    busy = any(
        each.role == "server" and each.stage in (Stage.ADDING, Stage.LEAVING) and each not in waiting
        for each in tenant.residents
    )
    if not tenant.runs:
        fresh = [each for each in waiting if each.stage is None]
        return [Step(resident=each, stage=Stage.STAYS, why=NOT_RUNNING) for each in fresh]
    here = sum(each.role == "server" and each.runs_here for each in tenant.residents)
    first = next((each for each in waiting if each.stage is Stage.ADDING), waiting[0])
    others = [each for each in waiting if each is not first and each.stage is None]
    steps = [] if busy else _server(first, elsewhere=tenant.servers - here, free=tenant.free_servers)
    waits = "the servers of a job leave one at a time"
    return steps + [Step(resident=each, stage=Stage.STAYS, why=waits) for each in others]


def _server(first: Resident, *, elsewhere: int, free: int) -> list[Step]:
    if first.stage is Stage.ADDING:
        if elsewhere > first.servers_before:
            return [Step(resident=first, stage=Stage.LEAVING, ask="drain")]
        if first.waited_s < ASK_AGAIN_S:
            return []
    if free and not (first.stage is Stage.ADDING and elsewhere):
        return [Step(resident=replace(first, servers_before=elsewhere), stage=Stage.ADDING, ask="add")]
    if elsewhere:
        return [Step(resident=first, stage=Stage.LEAVING, ask="drain")]
    return [] if first.stage is Stage.STAYS else [Step(resident=first, stage=Stage.STAYS, why=ONLY_SERVER)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The effect of a drain on one process."""

    job: int
    role: Role
    index: int
    machine: int | None
    """The machine on which it could start now; None: it waits for a slot, stays, or is not replaced."""
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The effect of a drain on all processes of a machine."""

    moves: tuple[Destination, ...]
    seconds: float | None
    """Expected time until the machine is empty; None if a process stays."""

    @property
    def stays(self) -> tuple[Destination, ...]:
        """The processes that would stay until their job ends."""
        stay = (ONLY_WORKER, ONLY_SERVER, UNREADABLE)
        return tuple(each for each in self.moves if each.machine is None and each.sentence in stay)


def preview(
    tenants: Iterable[Tenant],
    offers: Sequence[Offer],
    *,
    worker_s: float = WORKER_MOVE_S,
    server_s: float = SERVER_MOVE_S,
) -> Preview:
    """Preview where the processes of a machine would go now. ``offers`` are other machines that accept processes."""
    moves: list[Destination] = []
    longest: float | None = 0.0
    for tenant in tenants:
        found, offers = _destinations(tenant, offers)
        moves += found
        seconds = _seconds(tenant, worker_s, server_s)
        longest = None if longest is None or seconds is None else max(longest, seconds)
    return Preview(moves=tuple(moves), seconds=longest)


def _destinations(tenant: Tenant, offers: Sequence[Offer]) -> tuple[list[Destination], list[Offer]]:
    left: list[Offer] = list(offers)
    found: list[Destination] = []
    if not tenant.is_readable:
        return [_stays(tenant.job, each, UNREADABLE) for each in tenant.residents], left
    stuck = max(1, tenant.least) >= tenant.workers
    others = tenant.servers - sum(each.role == "server" for each in tenant.residents)
    for each in tenant.residents:
        at = next(
            (
                number
                for number, offer in enumerate(left)
                if offer.free(each.role) and offer.accepts(tenant.labels or {}, tenant.team)
            ),
            None,
        )
        place, sentence = None, _without_slot(each.role, stuck=stuck, others=others)
        if at is not None and not (each.role == "worker" and stuck):
            place, sentence = left[at].machine, f"moves to {left[at].name}"
            left[at] = left[at].without(each.role)
            others += each.role == "server"
        found.append(Destination(job=tenant.job, role=each.role, index=each.index, machine=place, sentence=sentence))
    return found, left


def _stays(job: int, each: Resident, sentence: str) -> Destination:
    return Destination(job=job, role=each.role, index=each.index, machine=None, sentence=sentence)


def _without_slot(role: Role, *, stuck: bool, others: int) -> str:
    if role == "worker":
        return ONLY_WORKER if stuck else "leaves, and starts again when a slot is free on another machine"
    return "ends: its blocks move to the other servers" if others else ONLY_SERVER


def _seconds(tenant: Tenant, worker_s: float, server_s: float) -> float | None:
    """Expected time: workers in rounds of as many as the job can spare, and in parallel servers one after another."""
    workers = sum(each.role == "worker" for each in tenant.residents)
    servers = len(tenant.residents) - workers
    spare = tenant.workers - max(1, tenant.least)
    if not tenant.is_readable:
        return None
    if (workers and spare < 1) or (servers and servers >= tenant.servers and not tenant.free_servers):
        return None
    rounds = -(-workers // spare) if workers else 0
    return max(rounds * worker_s, servers * server_s)
