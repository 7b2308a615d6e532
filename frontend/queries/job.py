"""The parts of one job's page: flags, decisions, processes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from controlplane.core.states import PROCESS_OVER
from controlplane.jobs.models import Decision, Flag, Job, Process
from frontend.queries.wording import describe

DECISIONS = 50
PROCESSES = 200
FLAGS = 50

KINDS: dict[str, tuple[str, ...]] = {
    "key": (
        *("move-job", "set-roster", "set-placement", "raise-flag", "close-flag"),
        *("change-policies", "adopt-predictor"),
    ),
    "shares": ("set-shares",),
    "barrier": ("hold-worker", "cut-iteration", "name-quorum"),
    "predictors": ("train-predictor", "score-predictors", "adopt-predictor"),
    "flags": ("raise-flag", "close-flag"),
    "processes": ("start-process", "stop-process", "move-process", "release-slots"),
    "all": (),
}
"""What the decision log can be narrowed to; everything where nothing is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionLine:
    """One decision: what was decided, in words, and why."""

    sequence: int
    incarnation: int
    at: datetime
    kind: str
    what: str
    reason: str
    iteration: int | None
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLine:
    """The latest life of one worker or server."""

    title: str
    role: str
    index: int
    machine: str
    slot: int
    state: str
    since: datetime
    reason: str
    share: int
    iteration: int
    emulated: float | None
    """Samples per second, where the machine is emulated."""
    lives: int
    over: bool


def flags(job: Job) -> list[Flag]:
    """Findings about the job's workers, open ones first."""
    rows = Flag.objects.filter(job=job).order_by("-opened_at", "-id")[:FLAGS]
    return sorted(rows, key=lambda flag: flag.closed_at is not None)


def decisions(job: Job, *, kinds: str = "key", before: int | None = None) -> list[DecisionLine]:
    """The latest decisions of some kinds, newest first; each share decision says what it changed."""
    rows = Decision.objects.filter(job=job).order_by("-incarnation", "-sequence")
    if KINDS.get(kinds):
        rows = rows.filter(kind__in=KINDS[kinds])
    if before is not None:
        rows = rows.filter(sequence__lt=before)
    found = list(rows[: DECISIONS + 1])
    earlier = {row.pk: _previous(row, found[place + 1 :]) for place, row in enumerate(found)}
    shown = found[:DECISIONS] if kinds != "key" else news(found[:DECISIONS])
    return [_decision_line(row, earlier[row.pk]) for row in shown]


def news(rows: Sequence[Decision]) -> list[Decision]:
    """Without the moves of a job into the state that it was in: they only say what is awaited there. Newest first."""
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


def _decision_line(row: Decision, earlier: dict[str, int]) -> DecisionLine:
    return DecisionLine(
        sequence=row.sequence,
        incarnation=row.incarnation,
        at=row.at,
        kind=row.kind,
        what=describe(row.kind, row.payload, earlier),
        reason=row.reason,
        iteration=row.iteration,
        cause=row.cause,
    )


def processes(job: Job) -> list[ProcessLine]:
    """Workers, then servers: the latest life of each, with how many there were."""
    rows = Process.objects.filter(job=job).select_related("agent").order_by("-role", "index", "started_at", "id")
    latest: dict[tuple[str, int], tuple[Process, int]] = {}
    for row in rows[:PROCESSES]:
        lives = latest[row.role, row.index][1] if (row.role, row.index) in latest else 0
        latest[row.role, row.index] = (row, lives + 1)
    return [_process_line(row, lives) for row, lives in latest.values()]


def _process_line(row: Process, lives: int) -> ProcessLine:
    return ProcessLine(
        title=f"{row.role[:1]}{row.index}",
        role=row.role,
        index=row.index,
        machine=row.agent.name if row.agent else "",
        slot=row.slot,
        state=row.state,
        since=row.state_since,
        reason=row.reason,
        share=row.share,
        iteration=row.iteration,
        emulated=(row.emulate or {}).get("samples_per_second"),
        lives=lives,
        over=row.state in PROCESS_OVER,
    )
