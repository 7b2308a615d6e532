"""Applies the engine's commands and the reports' sums to a job's rows. Only ingest calls it, in its transaction.

The exceptions are ``pause_lost_job`` and ``end_lost_job``: if the log is lost, ingest has nothing to read.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from statistics import median
from typing import Any, Final

import msgspec
from django.db import transaction

from controlplane.core.commands import (
    CARRIERS,
    AnyCommand,
    BeginIncarnation,
    CloseFlag,
    Delivered,
    MoveJob,
    MoveProcess,
    RaiseFlag,
    ReleaseSlot,
    ReleaseSlots,
    SetPlacement,
    SetRoster,
    SetShares,
    TrainPredictor,
)
from controlplane.core.states import JOB_OVER, PROCESS_OVER, JobState, ProcessState
from controlplane.fleet.reservations import release_slot, release_slots
from controlplane.jobs.environment import control_plane, machines_run
from controlplane.jobs.models import Decision, Flag, Job, Process
from controlplane.jobs.rows import change_row, insert_rows, read_row, update_rows
from controlplane.protocol.messages import BlockExchanged
from controlplane.protocol.spec import SpecError, parse_spec, spec_document

LOST_AWAITS: Final = "a release that can read its log, or a request to stop it"

DECISION_FIELDS: Final = ("job", "incarnation", "sequence", "at", "kind", "cause", "reason", "iteration", "payload")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The commands of one commit. ``sequence`` is the number of the first one, within the incarnation."""

    incarnation: int
    sequence: int
    commands: Sequence[AnyCommand | Delivered]

    @property
    def decisions(self) -> Iterator[tuple[int, AnyCommand]]:
        """The commands that decide something, each with its number."""
        for number, command in enumerate(self.commands, start=self.sequence):
            if not isinstance(command, (Delivered, *CARRIERS)):
                yield number, command


@dataclass(slots=True, kw_only=True)
class Progress:
    """What a batch of reports adds to a job."""

    reports: int = 0
    """How many reports are new."""
    samples: int = 0
    training_samples: int | None = None
    """Samples of the training split, if a worker has sent a hello."""
    busy_s: float = 0.0
    waiting_s: float = 0.0
    coordination_s: float = 0.0
    iterations: dict[tuple[int, str], int] = field(default_factory=dict)
    """The last reported iteration of each worker, by rank and instance."""
    exchanges: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    """Push and pull seconds of workers' exchanges with each server, by its index; without probes."""
    blocks: dict[int, dict[int, list[BlockExchanged]]] = field(default_factory=dict)
    """The same for each block, by server and block, if workers reported blocks."""
    evaluated: tuple[float | None, float | None] | None = None
    """The loss and accuracy of the last evaluation."""


def apply_answers(job_id: int, answers: Sequence[Answer]) -> bool:
    """Write decisions, and update job, processes, flags and slots accordingly; whether slots were released."""
    numbered = [(answer.incarnation, *decision) for answer in answers for decision in answer.decisions]
    if not numbered:
        return False
    commands = [command for _, _, command in numbered]
    insert_rows(Decision, DECISION_FIELDS, [_decision_row(job_id, *decision) for decision in numbered])
    _move_processes(job_id, [command for command in commands if isinstance(command, MoveProcess)])
    _move_job(job_id, commands)
    _count_workers(job_id, [command for command in commands if isinstance(command, SetRoster)])
    _give_shares(job_id, [command for command in commands if isinstance(command, SetShares)])
    _follow_ranks(job_id, [command for command in commands if isinstance(command, SetShares)])
    _place(job_id, [command for command in commands if isinstance(command, SetPlacement)])
    _move_flags(job_id, commands)
    return _release(job_id, commands)


def apply_progress(job_id: int, progress: Progress) -> None:
    """Add the values of reports and evaluations."""
    changes: dict[str, Any] = {}
    if progress.iterations:
        _move_iterations(job_id, progress.iterations)
        _add_up(job_id, progress)
    _time_servers(job_id, progress.exchanges)
    _time_blocks(job_id, progress.blocks)
    if progress.training_samples is not None:
        changes["training_samples"] = progress.training_samples
    if progress.evaluated is not None:
        changes["loss"], changes["accuracy"] = progress.evaluated
    if changes:
        Job.objects.filter(pk=job_id).update(**changes)


def pause_lost_job(job_id: int, reason: str, now: datetime) -> None:
    """Record that a job cannot be continued, and why; its progress stays."""
    live = Job.objects.filter(pk=job_id).exclude(state__in=JOB_OVER)
    live.exclude(state=JobState.PAUSED).update(state=JobState.PAUSED, state_since=now)
    live.update(reason=reason, awaited=LOST_AWAITS)


@transaction.atomic
def end_lost_job(job_id: int, state: JobState, reason: str, now: datetime) -> None:
    """End a job that no longer has an engine, with its processes, flags and slots."""
    live = Job.objects.filter(pk=job_id).exclude(state__in=JOB_OVER)
    if not live.update(state=state, state_since=now, finished_at=now, reason=reason, awaited=""):
        return
    Process.objects.filter(job_id=job_id, ended_at=None).update(
        state=ProcessState.STOPPED, state_since=now, ended_at=now, reason=reason
    )
    Flag.objects.filter(job_id=job_id, closed_at=None).update(closed_at=now, closing_reason=reason)
    release_slots(job_id)


def time_of(stream_id: str) -> datetime:
    """The time of this stream id by the log's clock."""
    return _time_at(stream_id.partition("-")[0])


@lru_cache(maxsize=1024)
def _time_at(milliseconds: str) -> datetime:
    """Cached, since a batch holds many entries of the same few milliseconds."""
    return datetime.fromtimestamp(int(milliseconds) / 1000, tz=UTC)


def _decision_row(job_id: int, incarnation: int, sequence: int, command: AnyCommand) -> Sequence[Any]:
    kind = str(command.__struct_config__.tag)
    payload = msgspec.json.encode(_without_data(command)).decode()
    at = time_of(command.cause)
    return job_id, incarnation, sequence, at, kind, command.cause, command.reason, _iteration(command), payload


def _without_data(command: AnyCommand) -> AnyCommand:
    """The input of a fit is in the log; it is of no use in the list of decisions."""
    return msgspec.structs.replace(command, data=b"") if isinstance(command, TrainPredictor) else command


def _iteration(command: AnyCommand) -> int | None:
    if isinstance(command, SetShares):
        return command.iteration
    return command.first_iteration if isinstance(command, SetRoster) else None


def _move_job(job_id: int, commands: Sequence[AnyCommand]) -> None:
    commands = [command for command in commands if isinstance(command, SetRoster | BeginIncarnation | MoveJob)]
    if not commands:
        return
    state, started_at = Job.objects.values_list("state", "started_at").get(pk=job_id)
    changes: dict[str, Any] = {}
    for command in commands:
        if isinstance(command, SetRoster):
            changes["generation"] = command.generation
        elif isinstance(command, BeginIncarnation):
            changes["incarnation"] = command.incarnation
        elif isinstance(command, MoveJob) and state not in JOB_OVER:
            at = time_of(command.cause)
            changes |= {"state": command.state, "awaited": command.awaited, "reason": command.reason}
            if command.state != state:
                state, changes["state_since"] = command.state, at
            if command.state is JobState.RUNNING and started_at is None:
                started_at = changes["started_at"] = at
                changes["environment"] = control_plane()
            if command.state in JOB_OVER:
                changes["finished_at"] = at
    if changes:
        Job.objects.filter(pk=job_id).update(**changes)


def _move_processes(job_id: int, moves: Sequence[MoveProcess]) -> None:
    """Insert new instances and update known ones. Of several updates of one instance only the last is stored."""
    rows: dict[tuple[str, int, str], Process] = {}
    agents = machines_run({move.agent for move in moves})
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
            environment=move.environment or agents.get(move.agent, {}),
            state=move.state,
            state_since=at,
            reason=move.reason,
            started_at=started_at,
            ended_at=at if move.state in PROCESS_OVER else None,
            restart=_restart(move),
            wants_slot=move.restart is not None and move.restart.wants_slot,
        )
    Process.objects.bulk_create(
        rows.values(),
        update_conflicts=True,
        unique_fields=["job", "role", "index", "instance"],
        update_fields=["state", "state_since", "reason", "ended_at", "restart", "wants_slot"],
    )
    _replace_lives(job_id, rows.values())


def _restart(move: MoveProcess) -> dict[str, Any] | None:
    if move.restart is None:
        return None
    at = datetime.fromtimestamp(move.restart.at_ms / 1000, tz=UTC)
    return {
        "number": move.restart.number,
        "allowed": move.restart.allowed,
        "at": at.isoformat(),
        "wants_slot": move.restart.wants_slot,
    }


def _replace_lives(job_id: int, moved: Iterable[Process]) -> None:
    """Mark previous instances as replaced when a new one starts; their planned restart has happened."""
    for row in moved:
        is_rank = row.agent_id is None or bool(row.environment.get("launcher"))
        is_new = row.state == ProcessState.ORDERED or (row.state == ProcessState.READY and is_rank)
        if is_new:  # ranks are not ordered
            before = Process.objects.filter(job_id=job_id, role=row.role, index=row.index)
            before.exclude(instance=row.instance).update(restart=None, wants_slot=False, counts_from=None)


def _count_workers(job_id: int, rosters: Sequence[SetRoster]) -> None:
    """Store from which iteration on new workers count, and that workers that left no longer do."""
    for roster in rosters:
        workers = Process.objects.filter(job_id=job_id, role="worker")
        workers.exclude(index__in=roster.ranks).update(counts_from=None)
        newcomers = workers.filter(ended_at=None, index__in=roster.ranks, counts_from=None)
        newcomers.update(counts_from=roster.first_iteration, iteration=roster.first_iteration - 1)


def _give_shares(job_id: int, decisions: Sequence[SetShares]) -> None:
    """Store the shares of the last decision; earlier ones are not visible."""
    if decisions:
        update_rows(
            f'UPDATE {Process._meta.db_table} SET share = %s WHERE job_id = %s AND role = %s AND "index" = %s'
            " AND ended_at IS NULL",
            [(share, job_id, "worker", rank) for rank, share in sorted(decisions[-1].shares.items())],
        )


def _follow_ranks(job_id: int, decisions: Sequence[SetShares]) -> None:
    """Store the size of an attached job, which its ranks report, in the spec, where readers expect it."""
    if not decisions or not (shares := decisions[-1].shares):
        return
    if read_row(f"SELECT 1 FROM {Job._meta.db_table} WHERE id = %s AND launch = %s", (job_id, "attached")) is None:
        return
    job = Job.objects.filter(pk=job_id).only("spec").first()
    size = {"workers": len(shares), "batch_size": sum(shares.values()) // len(shares)}
    if job is None or size.items() <= job.spec.items():
        return
    with suppress(SpecError):  # its limits were meant for another size: the spec stays as it was submitted
        job.spec = spec_document(parse_spec(job.spec | size))
        job.save(update_fields=["spec"])


def _move_iterations(job_id: int, iterations: dict[tuple[int, str], int]) -> None:
    """Store the last iteration of each worker; a repeated report can be older than the row."""
    update_rows(
        f"UPDATE {Process._meta.db_table} SET iteration = %s"
        ' WHERE job_id = %s AND role = %s AND "index" = %s AND instance = %s AND iteration < %s',
        [
            (iteration, job_id, "worker", rank, instance, iteration)
            for (rank, instance), iteration in sorted(iterations.items())
        ],
    )


def _release(job_id: int, commands: Sequence[AnyCommand]) -> bool:
    """Release slots that the job no longer needs; returns whether there were any."""
    for command in commands:
        if isinstance(command, ReleaseSlot):
            release_slot(job_id, command.role, command.index)
        elif isinstance(command, ReleaseSlots):
            release_slots(job_id)
    return any(isinstance(command, ReleaseSlot | ReleaseSlots) for command in commands)


def _place(job_id: int, decisions: Sequence[SetPlacement]) -> None:
    """Store the blocks of each server under the last placement; a server that is not in it has none."""
    if not decisions:
        return
    held: dict[int, list[int]] = defaultdict(list)
    for block in decisions[-1].blocks:
        held[block.server].append(block.bytes)
    servers = Process.objects.filter(job_id=job_id, role="server", ended_at=None)
    update_rows(
        f"UPDATE {Process._meta.db_table} SET blocks = %s, held_bytes = %s WHERE id = %s",
        [(len(held[index]), sum(held[index]), pk) for pk, index in servers.values_list("id", "index")],
    )


def _time_servers(job_id: int, exchanges: dict[int, list[tuple[float, float]]]) -> None:
    """Store the median of the workers' latest exchanges per server, so that a single outlier has no effect."""
    update_rows(
        f"UPDATE {Process._meta.db_table} SET push_s = %s, pull_s = %s"
        ' WHERE job_id = %s AND role = %s AND "index" = %s AND ended_at IS NULL',
        [
            (median(push for push, _ in seen), median(pull for _, pull in seen), job_id, "server", index)
            for index, seen in sorted(exchanges.items())
        ],
    )


def _time_blocks(job_id: int, blocks: dict[int, dict[int, list[BlockExchanged]]]) -> None:
    """As ``_time_servers``, by block. Workers report all blocks together, so a server's earlier values are replaced."""
    for index, measured in sorted(blocks.items()):
        times = [
            {
                "block": block,
                "bytes": seen[-1].bytes,
                "push_s": median(each.push_s for each in seen),
                "pull_s": median(each.pull_s for each in seen),
            }
            for block, seen in sorted(measured.items())
        ]
        live = Process.objects.filter(job_id=job_id, role="server", index=index, ended_at=None)
        live.update(block_times=times)


def _add_up(job_id: int, progress: Progress) -> None:
    """Add the sums, and count the iterations that every counting worker has reported; lost workers do not count."""
    table, workers = Job._meta.db_table, Process._meta.db_table
    change_row(
        f"UPDATE {table} SET samples = samples + %s, busy_s = busy_s + %s, waiting_s = waiting_s + %s,"
        " coordination_s = coordination_s + %s, iteration = COALESCE("
        f"(SELECT MIN({workers}.iteration) + 1 FROM {workers} WHERE {workers}.job_id = %s AND {workers}.role = %s"
        f" AND {workers}.counts_from IS NOT NULL AND {workers}.state <> %s), {table}.iteration) WHERE id = %s",
        (
            *(progress.samples, progress.busy_s, progress.waiting_s, progress.coordination_s),
            *(job_id, "worker", ProcessState.LOST.value, job_id),
        ),
    )


def _move_flags(job_id: int, commands: Sequence[AnyCommand]) -> None:
    for command in commands:
        if isinstance(command, BeginIncarnation):
            forgotten = Flag.objects.filter(job_id=job_id, closed_at=None).exclude(key__in=command.flags)
            forgotten.update(closed_at=time_of(command.cause), closing_reason=command.reason)
        if isinstance(command, RaiseFlag):
            Flag.objects.create(
                job_id=job_id,
                key=command.flag,
                subject=command.subject,
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
