"""Explains why a job does not start, with the jobs that it waits for and possible cures."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from controlplane.fleet.selectors import Capacity
from controlplane.scheduling.queueing import PATIENCE_S, Offer, Outcome, SlotRequest
from paceline.cli.places import MANAGE

NAMED: Final = 3
"""Most jobs or labels named in a sentence; it gives the number of the others."""

ALLOW: Final = "--allow-scripts DIR"
"""The option of agents that run scripts."""

Relation = Literal["holds", "ahead"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a sentence: text, possibly the name of a job, or a time."""

    text: str
    job: int | None = None
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """A job that another one waits for."""

    job: int
    name: str
    relation: Relation
    """Whether it holds slots of suitable machines, or is ahead in the queue."""
    workers: int
    servers: int
    """Slots that it holds on suitable machines, or needs."""
    since: datetime | None = None
    """For a job ahead: when it was submitted."""
    priority: int | None = None
    starts: bool = False
    kept: bool = False
    """For a job ahead: whether it has its slots, or free slots are reserved for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Why one job does not start."""

    request: SlotRequest
    outcome: Outcome
    capacity: Capacity
    machines: tuple[Offer, ...]
    """Slots of online machines that take jobs of its team, regardless of labels."""
    keeps: bool
    holders: tuple[Blocker, ...]
    ahead: tuple[Blocker, ...]
    """Jobs ahead, in the order of the queue."""
    bound: str = ""
    """The subject with an exhausted quota of slots; empty if no quota prevents the start."""
    closed: tuple[str, ...] = ()
    """Names of online machines with its labels that are cordoned or drained."""

    @property
    def sentence(self) -> str:
        """The explanation as plain text."""
        return "".join(f"at {piece.at:%H:%M} UTC" if piece.at else piece.text for piece in self.pieces)

    @property
    def pieces(self) -> list[Piece]:
        """The explanation in pieces, so that pages can link jobs."""
        return [*_pieces(self)]

    @property
    def blockers(self) -> list[Blocker]:
        """Jobs that hold slots, then jobs ahead."""
        return [*self.holders, *self.ahead]


def _pieces(waiting: Waiting) -> Iterator[Piece]:
    needs = _needs(waiting.request)
    match waiting.outcome:
        case Outcome.STARTS:
            yield Piece(text=f"needs {needs}, which are free: it is about to start")
        case Outcome.NEVER:
            yield Piece(text=f"cannot be scheduled: needs {needs}, {_missing(waiting)}")
        case Outcome.WAITS if waiting.bound:
            yield Piece(text=f"needs {needs}, and the quota of slots of {waiting.bound} leaves fewer: it starts ")
            yield Piece(text="when other jobs of that quota end, or an admin raises it")
        case Outcome.WAITS:
            yield Piece(text=f"needs {needs}, of which {_free(waiting)} free")
            yield from _held(waiting.holders)
            yield from _before(waiting)
            if waiting.keeps:
                minutes = f"{PATIENCE_S / 60:g} minutes"
                yield Piece(text=f"; free slots are reserved for it, since it has waited for more than {minutes}")


def _held(holders: tuple[Blocker, ...]) -> Iterator[Piece]:
    for at, holder in enumerate(holders[:NAMED]):
        yield Piece(text=", " if at else "; ")
        yield _named(holder)
        yield Piece(text=f" holds {_slots(holder.workers, holder.servers)}")
    if len(holders) > NAMED:
        yield Piece(text=f", and {_count(len(holders) - NAMED, 'other job')} the rest")


def _before(waiting: Waiting) -> Iterator[Piece]:
    """The sentence about jobs ahead, which names the first ones; jobs with reserved slots come first."""
    ahead = waiting.ahead
    if not ahead:
        return
    first = next((each for each in ahead if each.kept), ahead[0])
    yield Piece(text=f"; {_count(len(ahead), 'job')} ahead of it{', such as' if len(ahead) > 1 else ':'} ")
    yield _named(first)
    if first.priority != waiting.request.priority:
        yield Piece(text=f" of priority {first.priority}")
    if first.starts:
        yield Piece(text=", which is about to start")
        return
    yield Piece(text=", which was submitted ")
    yield Piece(text="", at=first.since)
    yield Piece(text=f" and waits for {_slots(first.workers, first.servers)}")
    if first.kept:
        yield Piece(text=", so free slots are reserved for it")


def _missing(waiting: Waiting) -> str:
    """The missing resource, and the cure."""
    request, there = waiting.request, waiting.capacity
    if waiting.closed and not there.matching:
        verb = "is" if len(waiting.closed) == 1 else "are"
        names = ", ".join(waiting.closed[:NAMED])
        return f"and no machine takes new processes: {names} {verb} cordoned or drained; uncordon {waiting.closed[0]}"
    if not there.online:
        return f"and no machine is online: add one with python -m workers join{f' {ALLOW}' * request.script}"
    # Only the token's labels count: those that a machine reports about itself are ignored.
    token = f"a token from: {MANAGE} enroll {' '.join(f'--label {label}' for label in _pairs(request.labels))}"
    if request.script and not there.matching and (refusing := _refusing_scripts(waiting)):
        return f"and {refusing}: start its agent with {ALLOW}, or submit it with other labels"
    if not there.matching:
        none = "the only machine online has no" if there.online == 1 else f"none of the {there.online} online has"
        cure = f"add one with {token}, or submit it with other labels"
        return f"and {none} {_missing_labels(request.labels, waiting.machines)}: {cure}"
    workers, servers = max(0, request.least - there.workers), max(0, request.servers - there.servers)
    offered = _count(there.workers, "worker slot")
    offered += f" and {_count(there.servers, 'server slot')}" if request.servers else ""
    options = " ".join([f"--slots {workers}"] * bool(workers) + [f"--server-slots {servers}"] * bool(servers))
    options += f" {ALLOW}" if request.script else ""
    options += f" and {token}" if request.labels else ""
    which = "machine" if there.matching == 1 else f"{there.matching} machines"
    which += " with these labels" if request.labels else " online"
    which += f" that run{'s' * (there.matching == 1)} scripts" if request.script else ""
    which += " offer" + "s" * (there.matching == 1)
    lack = f"{_slots(workers, servers)} {'is' if workers + servers == 1 else 'are'} missing"
    cure = f"have another machine join with {options}, or submit it with fewer"
    if waiting.closed:
        cure = f"uncordon {' or '.join(waiting.closed[:NAMED])}, {cure}"
    return f"and the {which} {offered} in all: {lack}; {cure}"


def _refusing_scripts(waiting: Waiting) -> str:
    """That no machine with the job's labels runs scripts; empty if no machine has its labels."""
    refusing = [each.name for each in waiting.machines if each.carries(waiting.request.labels)]
    if not refusing:
        return ""
    names = ", ".join(refusing[:NAMED]) + (f" and {len(refusing) - NAMED} more" if len(refusing) > NAMED else "")
    which = " with these labels" if waiting.request.labels else " online"
    number = "the only machine" if len(refusing) == 1 else f"none of the {len(refusing)} machines"
    return f"{number}{which} ({names}) runs {'no ' if len(refusing) == 1 else ''}scripts"


def _missing_labels(labels: Mapping[str, str], machines: tuple[Offer, ...]) -> str:
    """The labels that no machine has and those that machines have instead, or that no machine has all labels."""
    missing = {key: value for key, value in labels.items() if not any(each.carries({key: value}) for each in machines)}
    if not missing:
        return f"{' and '.join(_pairs(labels))} together"
    there = {f"{key}={each.labels[key]}" for each in machines for key in missing if key in each.labels}
    instead = f" (there is {', '.join(sorted(there)[:NAMED])})" if there else ""
    return f"{' and '.join(_pairs(missing))}{instead}"


def _named(blocker: Blocker) -> Piece:
    if not blocker.name:  # it is deleted, or never had a row here
        return Piece(text=f"job {blocker.job}")
    return Piece(text=f"job {blocker.job} ({blocker.name})", job=blocker.job)


def _needs(request: SlotRequest) -> str:
    workers = _count(request.workers, "worker slot")
    if request.least < request.workers:
        workers = f"{request.least} to {workers}"
    servers = f" and {_count(request.servers, 'server slot')}" if request.servers else ""
    return workers + servers + (f" on machines labelled {', '.join(_pairs(request.labels))}" if request.labels else "")


def _free(waiting: Waiting) -> str:
    there = waiting.capacity
    if waiting.request.servers:
        return f"{there.free_workers} and {there.free_servers} are"
    return f"{there.free_workers} {'is' if there.free_workers == 1 else 'are'}"


def _slots(workers: int, servers: int) -> str:
    offered_slots = [_count(workers, "worker slot")] * bool(workers) + [_count(servers, "server slot")] * bool(servers)
    return " and ".join(offered_slots)


def _pairs(labels: Mapping[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in sorted(labels.items())]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
