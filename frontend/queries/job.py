"""Reads the parts of a job's page: flags, decisions, processes, servers."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import F, Q, QuerySet

from controlplane.core.states import PROCESS_OVER, ProcessState
from controlplane.jobs.flag_notes import Note, notes_on
from controlplane.jobs.machines import ON_MACHINES, machine_name
from controlplane.jobs.models import AuditEntry, Decision, Flag, Job, Process
from controlplane.jobs.stored_specs import stored_spec
from frontend.queries.acknowledgements import Acknowledgement, acknowledgements
from frontend.queries.effects import Effect, effects
from frontend.queries.evidence import Evidence, evidence_of
from frontend.queries.wording import describe, emulation_title

DECISIONS = 50
MAX_PAYLOAD = 20_000
"""Maximum characters of a decision's JSON on a page; exports contain all of it."""

PROCESSES = 200
FLAGS = 50

KINDS: dict[str, tuple[str, ...]] = {
    "key": (
        *("move-job", "set-roster", "set-placement", "move-blocks", "abandon-move", "measure-placement"),
        *("raise-flag", "close-flag", "begin-incarnation", "roll-back", "refill-blocks", "skip-checkpoint"),
        *(
            "change-policies",
            "judge-convergence",
            "adopt-predictor",
            "note-micro-batch",
            "partition-data",
            "move-splits",
        ),
        *("decline-request", "leave-out", "take-back", "drain-server"),
        *("judge-alternatives", "measure-switch", "set-autopilot"),
    ),
    "shares": ("set-shares",),
    "placement": (
        *("set-placement", "move-blocks", "abandon-move", "measure-placement"),
        *("request-slot", "release-slot"),
    ),
    "data": ("partition-data", "move-splits"),
    "barrier": ("hold-worker", "cut-iteration", "name-quorum", "note-micro-batch", "note-updates"),
    "autopilot": ("play-alternatives", "judge-alternatives", "measure-switch", "set-autopilot", "change-policies"),
    "predictors": ("train-predictor", "score-predictors", "adopt-predictor"),
    "operators": ("change-policies", "judge-convergence", "leave-out", "take-back", "drain-server", "decline-request"),
    "flags": ("raise-flag", "close-flag"),
    "recovery": ("roll-back", "refill-blocks", "keep-checkpoint", "skip-checkpoint", "begin-incarnation"),
    "processes": ("start-process", "stop-process", "move-process", "release-slots"),
    "all": (),
}
"""The filters of the decision log; all decisions if none is named."""


LOSS = Q(kind="move-process", payload__state=ProcessState.LOST)
"""Losses of processes."""


def of_kinds(name: str) -> Q:
    """The filter for one of ``KINDS``; ``key`` includes losses."""
    kinds = Q(kind__in=KINDS[name]) if KINDS[name] else Q()
    return kinds | LOSS if name == "key" else kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionLine:
    """One decision as text, with its reason, effect and acknowledgements."""

    sequence: int
    incarnation: int
    at: datetime
    kind: str
    what: str
    reason: str
    iteration: int | None
    cause: str
    actor: str
    """The user who requested it, otherwise the policy that decided, otherwise the engine."""
    effect: Effect | None
    acknowledgement: Acknowledgement | None
    """Which workers have acknowledged it, if it was sent to workers."""
    payload: str
    """As JSON, for display."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagLine:
    """One finding, with the user who acknowledged or muted it."""

    id: int
    key: str
    subject: str
    rank: int
    title: str
    kind: str
    persistence: str
    sentence: str
    opened_at: datetime
    closed_at: datetime | None
    closing_reason: str
    note: Note | None
    behind: Evidence
    """Its evidence, and the actions since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLine:
    """The latest instance of one worker or server."""

    title: str
    role: str
    index: int
    machine: str
    machine_id: int | None
    slot: int
    state: str
    since: datetime
    reason: str
    share: int
    iteration: int
    emulated: str
    """The emulated speed; empty for a real machine."""
    instances: int
    earlier: str
    """Why the previous instance was lost; empty if it was not."""
    earlier_at: datetime | None
    over: bool
    returns: bool
    """Whether its next instance is planned."""
    about: dict[str, str]
    """Values reported by a rank of an attached job, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLine:
    """One parameter server as the workers see it."""

    index: int
    blocks: int
    held_bytes: int
    push_s: float | None
    pull_s: float | None
    """Recent seconds of a worker's exchange with it."""
    slowest: dict[str, Any] | None
    """The block with the longest push and pull."""
    emulated: dict[str, Any] | None
    """The bandwidth limit of its link, if emulated."""
    flagged: bool


def flags(job: Job, now: datetime) -> list[FlagLine]:
    """Findings about the job, its workers and servers, open ones first, with users' notes."""
    latest = F("closed_at").desc(nulls_first=True), "-opened_at", "-id"
    rows = list(Flag.objects.filter(job=job).order_by(*latest)[:FLAGS])
    notes, behind = notes_on(rows, now), evidence_of(job, rows)
    own = FlagLine.__dataclass_fields__.keys() - {"note", "behind"}
    return [
        FlagLine(**{name: getattr(row, name) for name in own}, note=notes.get(row.pk), behind=behind[row.pk])
        for row in rows
    ]


def machines_of(job: Job, found: Sequence[FlagLine]) -> dict[int, int]:
    """The machine of each flag's process when the flag was opened, by flag; 0 if it was removed."""
    rows = Process.objects.filter(ON_MACHINES, job=job, index__in={flag.rank for flag in found})
    instances: dict[tuple[str, int], list[Process]] = defaultdict(list)
    for row in rows.order_by("started_at", "id"):
        instances[row.role, row.index].append(row)
    places: dict[int, int] = {}
    for flag in found:
        for row in instances[flag.subject, flag.rank]:
            if row.started_at <= flag.opened_at:
                places[flag.id] = row.agent_id or 0
    return places


def decisions(job: Job, *, kinds: str = "key", before: int | None = None, most: int = DECISIONS) -> list[DecisionLine]:
    """The latest decisions of some kinds, newest first; share decisions show their changes."""
    rows = Decision.objects.filter(job=job).order_by("-incarnation", "-sequence")
    rows = rows.filter(of_kinds(kinds))
    if before is not None:
        rows = rows.filter(sequence__lt=before)
    found = list(rows[: most + 1])
    earlier = {row.pk: _previous(row, found[place + 1 :]) for place, row in enumerate(found)}
    shown = found[:most] if kinds != "key" else notable(found[:most])
    measured, acked, actors = effects(job, shown), acknowledgements(job, shown), request_actors(job)
    return [
        _decision_line(row, earlier[row.pk], actor_of(row, actors), measured.get(row.pk), acked.get(row.pk))
        for row in shown
    ]


def request_actors(job: Job) -> dict[str, str]:
    """The user of each request, by its entry in the job's log."""
    requests = AuditEntry.objects.filter(job=job).exclude(entry="")
    return dict(requests.values_list("entry", "actor"))


def actor_of(row: Decision, actors: Mapping[str, str]) -> str:
    """The user who requested a decision, otherwise the policy that it names, otherwise the engine."""
    return actors.get(row.cause) or str(row.payload.get("policy") or "the engine")


def notable(rows: Sequence[Decision]) -> list[Decision]:
    """Drop moves of a job to its current state, which only update what it waits for. Newest first."""
    states: dict[int, str] = {}
    kept = []
    for row in reversed(rows):
        state = row.payload.get("state", "") if row.kind == "move-job" else ""
        if not state or states.get(row.job_id) != state:
            kept.append(row)
        states[row.job_id] = state or states.get(row.job_id, "")
    return kept[::-1]


def _previous(row: Decision, older: list[Decision]) -> dict[str, int]:
    """The shares before this decision, if it is about shares."""
    if row.kind != "set-shares":
        return {}
    return next((each.payload.get("shares", {}) for each in older if each.kind == "set-shares"), {})


def _decision_line(
    row: Decision, earlier: dict[str, int], actor: str, effect: Effect | None, ack: Acknowledgement | None
) -> DecisionLine:
    return DecisionLine(
        sequence=row.sequence,
        incarnation=row.incarnation,
        at=row.at,
        kind=row.kind,
        what=describe(row.kind, row.payload, earlier),
        reason=row.reason,
        iteration=row.iteration,
        cause=row.cause,
        actor=actor,
        effect=effect,
        acknowledgement=ack,
        payload=json.dumps(row.payload, indent=1)[:MAX_PAYLOAD],
    )


def processes(job: Job) -> list[ProcessLine]:
    """Workers, then servers: the latest instance of each, and the number of instances."""
    rows = Process.objects.filter(job=job).select_related("agent").order_by("-role", "index", "started_at", "id")
    instances: dict[tuple[str, int], list[Process]] = defaultdict(list)
    for row in rows[:PROCESSES]:
        instances[row.role, row.index].append(row)
    return [_process_line(*each) for each in instances.values()]


def ends_with_a_server(job: Job) -> bool:
    """Whether the loss of a server ends the job, as it has no restarts."""
    spec = stored_spec(job)
    return spec.servers > 0 and not spec.elastic.restarts


def late_updates(job: Job) -> dict[str, int]:
    """The number of late updates that servers dropped, by worker title."""
    noted = Decision.objects.filter(job=job, kind="note-updates").order_by("incarnation", "sequence").last()
    late = noted.payload.get("late", {}) if noted is not None else {}
    return {f"w{rank}": late[rank] for rank in sorted(late, key=int)}


def servers(job: Job) -> list[ServerLine]:
    """The blocks of each server and its exchange times; ended servers are omitted."""
    rows = Process.objects.filter(job=job, role="server", ended_at=None) if not job.is_over else _last_servers(job)
    limits = job.spec.get("emulate_servers") or []
    flagged = set(Flag.objects.filter(job=job, subject="server", closed_at=None).values_list("rank", flat=True))
    return [
        ServerLine(
            index=row.index,
            blocks=row.blocks,
            held_bytes=row.held_bytes,
            push_s=row.push_s,
            pull_s=row.pull_s,
            slowest=max(row.block_times, key=lambda each: each["push_s"] + each["pull_s"], default=None),
            emulated=limits[row.index] if row.index < len(limits) else None,
            flagged=row.index in flagged,
        )
        for row in rows.order_by("index", "id")
    ]


def _last_servers(job: Job) -> QuerySet[Process]:
    """The server processes at the end of a finished job."""
    return Process.objects.filter(job=job, role="server", blocks__gt=0)


def _process_line(*instances: Process) -> ProcessLine:
    row = instances[-1]
    lost = next((instance for instance in instances[-2::-1] if instance.state == ProcessState.LOST), None)
    return ProcessLine(
        title=f"{row.role[:1]}{row.index}",
        role=row.role,
        index=row.index,
        machine=machine_name(row),
        machine_id=row.agent_id,
        slot=row.slot,
        state=row.state,
        since=row.state_since,
        reason=row.reason,
        share=row.share,
        iteration=row.iteration,
        emulated=emulation_title(row.emulate),
        instances=len(instances),
        earlier=lost.reason if lost else "",
        earlier_at=lost.ended_at if lost else None,
        over=row.state in PROCESS_OVER,
        returns=row.restart is not None or row.wants_slot,
        about=row.environment,
    )
