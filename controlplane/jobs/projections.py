"""What the engine's commands and the reports' sums make of a job's rows. Called by ingest alone, in its transaction.

But for ``fail_lost_job``: where the log is gone, ingest has nothing to read.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import msgspec
from django.db import transaction
from django.db.models import F, Min

from controlplane.core.commands import (
    AnyCommand,
    CloseFlag,
    IssueOrders,
    IssuePlacement,
    IssueServerOrders,
    MoveJob,
    MoveProcess,
    RaiseFlag,
    RejectMessage,
    ReleaseSlots,
    SetRoster,
    SetShares,
    TrainPredictor,
)
from controlplane.core.states import JOB_OVER, PROCESS_OVER, JobState, ProcessState
from controlplane.fleet.models import Agent
from controlplane.fleet.services import release_slots
from controlplane.jobs.models import Decision, Flag, Job, Process
from controlplane.jobs.rows import insert_rows, update_rows

CARRIERS: Final = (IssueOrders, IssuePlacement, IssueServerOrders, RejectMessage)
"""Commands that merely carry a decision to somebody: they are no decisions of their own."""

DECISION_FIELDS: Final = ("job", "incarnation", "sequence", "at", "kind", "cause", "reason", "iteration", "payload")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The commands of one commit; ``sequence`` is that of the first."""

    sequence: int
    commands: Sequence[AnyCommand]


@dataclass(slots=True, kw_only=True)
class Progress:
    """What a batch of reports adds to a job."""

    samples: int = 0
    busy_s: float = 0.0
    waiting_s: float = 0.0
    coordination_s: float = 0.0
    iterations: dict[tuple[int, str], int] = field(default_factory=dict)
    """The last reported iteration of each worker, by rank and instance."""
    evaluated: tuple[float | None, float | None] | None = None
    """Loss and accuracy of the last evaluation."""


def apply_answers(job_id: int, incarnation: int, answers: Sequence[Answer]) -> bool:
    """Write decisions, and move job, processes, flags and slots as they say; whether slots were given back."""
    commands = [command for answer in answers for command in answer.commands]
    insert_rows(Decision, DECISION_FIELDS, list(_decision_rows(job_id, incarnation, answers)))
    _move_processes(job_id, [command for command in commands if isinstance(command, MoveProcess)])
    _move_job(job_id, commands)
    _give_shares(job_id, [command for command in commands if isinstance(command, SetShares)])
    _move_flags(job_id, commands)
    released = any(isinstance(command, ReleaseSlots) for command in commands)
    if released:
        release_slots(job_id)
    return released


def apply_progress(job_id: int, progress: Progress) -> None:
    """Add what reports and evaluations brought."""
    changes: dict[str, Any] = {}
    if progress.iterations:
        changes = {
            name: F(name) + getattr(progress, name) for name in ("samples", "busy_s", "waiting_s", "coordination_s")
        }
        _move_iterations(job_id, progress.iterations)
        reached = _reached(job_id)
        changes |= {} if reached is None else {"iteration": reached + 1}
    if progress.evaluated is not None:
        changes["loss"], changes["accuracy"] = progress.evaluated
    if changes:
        Job.objects.filter(pk=job_id).update(**changes)


@transaction.atomic
def fail_lost_job(job_id: int, reason: str, now: datetime) -> bool:
    """End a job that has no engine any more, with its processes, flags and slots; False where it is over already."""
    live = Job.objects.filter(pk=job_id).exclude(state__in=JOB_OVER)
    if not live.update(state=JobState.FAILED, state_since=now, finished_at=now, reason=reason, awaited=""):
        return False
    Process.objects.filter(job_id=job_id, ended_at=None).update(
        state=ProcessState.STOPPED, state_since=now, ended_at=now, reason=reason
    )
    Flag.objects.filter(job_id=job_id, closed_at=None).update(closed_at=now, closing_reason=reason)
    release_slots(job_id)
    return True


def time_of(stream_id: str) -> datetime:
    """When the log's clock gave out this stream id."""
    return _time_at(stream_id.partition("-")[0])


@lru_cache(maxsize=1024)
def _time_at(milliseconds: str) -> datetime:
    """Kept, since a batch holds many entries of the same few milliseconds."""
    return datetime.fromtimestamp(int(milliseconds) / 1000, tz=UTC)


def _decision_rows(job_id: int, incarnation: int, answers: Sequence[Answer]) -> Iterable[Sequence[Any]]:
    for answer in answers:
        for sequence, command in enumerate(answer.commands, start=answer.sequence):
            if isinstance(command, CARRIERS):
                continue
            kind = str(command.__struct_config__.tag)
            payload = msgspec.json.encode(_without_data(command)).decode()
            at = time_of(command.cause)
            yield job_id, incarnation, sequence, at, kind, command.cause, command.reason, _iteration(command), payload


def _without_data(command: AnyCommand) -> AnyCommand:
    """What a fit was given stands in the log; a person who reads decisions has no use for it."""
    return msgspec.structs.replace(command, data=b"") if isinstance(command, TrainPredictor) else command


def _iteration(command: AnyCommand) -> int | None:
    if isinstance(command, SetShares):
        return command.iteration
    return command.first_iteration if isinstance(command, SetRoster) else None


def _move_job(job_id: int, commands: Sequence[AnyCommand]) -> None:
    state, started_at = Job.objects.values_list("state", "started_at").get(pk=job_id)
    changes: dict[str, Any] = {}
    for command in commands:
        if isinstance(command, SetRoster):
            changes["generation"] = command.generation
        elif isinstance(command, MoveJob):
            at = time_of(command.cause)
            changes |= {"state": command.state, "awaited": command.awaited, "reason": command.reason}
            if command.state != state:
                state, changes["state_since"] = command.state, at
            if command.state is JobState.RUNNING and started_at is None:
                started_at = changes["started_at"] = at
            if command.state in JOB_OVER:
                changes["finished_at"] = at
    if changes:
        Job.objects.filter(pk=job_id).update(**changes)


def _move_processes(job_id: int, moves: Sequence[MoveProcess]) -> None:
    """Insert new lives and move known ones. Of several moves of one life only the last shows."""
    rows: dict[tuple[str, int, str], Process] = {}
    agents = _known_agents({move.agent for move in moves})
    for move in moves:
        key, at = (move.role, move.index, move.instance), time_of(move.cause)
        started_at = rows[key].started_at if key in rows else at
        rows[key] = Process(
            job_id=job_id,
            role=move.role,
            index=move.index,
            instance=move.instance,
            agent_id=move.agent if move.agent in agents else None,
            slot=move.slot,
            emulate=msgspec.to_builtins(move.emulate),
            state=move.state,
            state_since=at,
            reason=move.reason,
            started_at=started_at,
            ended_at=at if move.state in PROCESS_OVER else None,
        )
    Process.objects.bulk_create(
        rows.values(),
        update_conflicts=True,
        unique_fields=["job", "role", "index", "instance"],
        update_fields=["state", "state_since", "reason", "ended_at"],
    )


def _known_agents(wanted: set[int]) -> set[int]:
    return set(Agent.objects.filter(pk__in=wanted).values_list("pk", flat=True)) if wanted else set()


def _give_shares(job_id: int, decisions: Sequence[SetShares]) -> None:
    """Only the last decision shows."""
    if decisions:
        update_rows(
            f'UPDATE {Process._meta.db_table} SET share = %s WHERE job_id = %s AND role = %s AND "index" = %s'
            " AND ended_at IS NULL",
            [(share, job_id, "worker", rank) for rank, share in sorted(decisions[-1].shares.items())],
        )


def _move_iterations(job_id: int, iterations: dict[tuple[int, str], int]) -> None:
    """A report that came twice may be older than what the row has."""
    update_rows(
        f"UPDATE {Process._meta.db_table} SET iteration = %s"
        ' WHERE job_id = %s AND role = %s AND "index" = %s AND instance = %s AND iteration < %s',
        [
            (iteration, job_id, "worker", rank, instance, iteration)
            for (rank, instance), iteration in sorted(iterations.items())
        ],
    )


def _reached(job_id: int) -> int | None:
    """The last iteration that every counting worker has reported; the dead do not count."""
    workers = Process.objects.filter(job_id=job_id, role="worker").exclude(state=ProcessState.DEAD)
    reached: int | None = workers.aggregate(reached=Min("iteration"))["reached"]
    return reached


def _move_flags(job_id: int, commands: Sequence[AnyCommand]) -> None:
    for command in commands:
        if isinstance(command, RaiseFlag):
            Flag.objects.create(
                job_id=job_id,
                key=command.flag,
                rank=command.rank,
                kind=command.kind,
                persistence=command.persistence,
                sentence=command.reason,
                evidence=msgspec.to_builtins(command.evidence, str_keys=True),
                opened_at=time_of(command.cause),
            )
        elif isinstance(command, CloseFlag):
            Flag.objects.filter(job_id=job_id, key=command.flag, closed_at=None).update(
                closed_at=time_of(command.cause), closing_reason=command.reason
            )
