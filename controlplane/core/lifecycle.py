"""The life of a job: from submission to slots to running processes; the end of processes; and timeouts.

A process is *lost* after ``SILENCE_MS`` without a heartbeat; after an outage of the control plane itself, no process is
declared lost for another ``GRACE_MS``. The engine returns its next deadline; the driver appends ``TimePassed`` when it
has passed.
"""

import itertools
from collections.abc import Mapping, Sequence

from controlplane.core import attached, granting, iterations, membership, placing, recovery, restarts, scripts, starting
from controlplane.core.commands import MoveJob, ReleaseSlots
from controlplane.core.context import SLOTS_RETURN_MS, Context, EventRefused, being, named, number_of
from controlplane.core.events import (
    Assignment,
    ControlPlaneResumed,
    EngineFailed,
    ExclusionRequested,
    JobSubmitted,
    ProcessDied,
    ServerMessageReceived,
    SlotRefused,
    SlotsAssigned,
    StopRequested,
    TimePassed,
    WorkerMessageReceived,
)
from controlplane.core.state import Job
from controlplane.core.states import AT_WORK, JOB_OVER, JobState, Process, ProcessState, Server, Worker
from controlplane.protocol.messages import ServerHello, WorkerHello

SILENCE_MS = 4_000
"""A process is lost after this long without a heartbeat, at the next multiple of ``GRID_MS``."""

GRID_MS = 250
"""Heartbeats of a machine's processes come at different moments: if it vanishes, most are lost at the same check."""

START_MS = 60_000
"""Time limit for the hello of an ordered process."""

GRACE_MS = 5_000
"""How long no process is declared lost after an outage of the control plane."""


def on_submitted(context: Context, event: JobSubmitted) -> None:
    """The job was created and waits for slots."""
    job, spec = context.job, event.spec
    if job.spec is not None:
        raise EventRefused(f"job {job.number}: submitted twice")
    job.spec, job.salt = spec, event.salt
    job.synchronization = spec.synchronization
    job.since_ms = context.now_ms
    if not spec.takes_slots:
        job.attachment.waits_since_ms = context.now_ms
        awaited = "ranks, none of which is connected: start the script with paceline run"
        context.move_job(JobState.STARTING, "submitted: its launcher starts its ranks", awaited=awaited)
        return
    awaited = f"{spec.workers} worker slots and {spec.servers} server slots"
    if spec.attached:
        awaited = number_of(spec.workers, "worker slot")
    context.emit(MoveJob, "submitted", state=JobState.SUBMITTED, awaited=awaited)


def on_slots_assigned(context: Context, event: SlotsAssigned) -> None:
    """Start processes on their slots: all at the start, later those that wait for one."""
    job = context.job
    if job.state in JOB_OVER and not job.holds_slots:
        context.emit(ReleaseSlots, f"the slots came when the job was {job.state}")
        return
    if not context.spec.takes_slots:
        raise EventRefused(f"job {job.number}: slots were assigned, but its launcher starts its ranks")
    if not context.mode.owns_processes:
        scripts.take_slots(context, event.assignments)
        return
    if job.state in (JobState.STARTING, JobState.RUNNING, JobState.PAUSED):
        if placing.takes_slot(context, event.assignments):
            restarts.start_instance(context, event.assignments[0])
        elif not restarts.take_slots(context, event.assignments):
            raise EventRefused(f"job {job.number}: slots were assigned, but no process waits for one")
        return
    if job.state is not JobState.SUBMITTED:
        raise EventRefused(f"job {job.number}: slots were assigned, but it is {job.state}")
    _begin(context, event.assignments)


def _begin(context: Context, assignments: list[Assignment]) -> None:
    job, spec = context.job, context.spec
    _check_assignments(context, assignments)
    job.holds_slots = True
    machines = len({assignment.agent for assignment in assignments})
    where = "one machine" if machines == 1 else f"{machines} machines"
    context.move_job(JobState.SCHEDULED, f"{len(assignments)} slots on {where} are reserved")
    for assignment in assignments:
        restarts.start_instance(context, assignment)
    for rank in range(spec.workers):
        if rank not in job.workers:
            restarts.await_slot(context, rank)
    awaited = f"hello of {len(assignments) - spec.servers} workers and {spec.servers} servers"
    context.move_job(JobState.STARTING, "its processes were ordered", awaited=awaited)


def on_slot_refused(context: Context, event: SlotRefused) -> None:
    """No slot is free for a process that a running job requested."""
    if context.mode.owns_processes:
        placing.on_slot_refused(context, event)
    else:
        scripts.on_slot_refused(context, event)


def on_stop_requested(context: Context, event: StopRequested) -> None:
    """End the job now, in any state; a launcher's ranks are requested to stop first."""
    if context.job.state in JOB_OVER:
        raise EventRefused(f"job {context.job.number}: stop by {event.actor}, but it is {context.job.state}")
    if not context.mode.owns_processes:
        attached.stop_ranks(context, event.sentence)
        return
    context.end_job(JobState.CANCELLED, event.sentence)


def on_engine_failed(context: Context, event: EngineFailed) -> None:
    """An error of the control plane ends only the affected job."""
    if context.job.state in JOB_OVER:
        raise EventRefused(f"job {context.job.number}: it failed at {event.entry}, but it is {context.job.state}")
    context.end_job(JobState.FAILED, f"the control plane failed at {event.entry}: {event.reason}")


def on_process_died(context: Context, event: ProcessDied) -> None:
    """A process has ended: continue without it, end the job, or only record it."""
    job = context.job
    if not context.mode.owns_processes:
        attached.on_script_ended(context, scripts.on_process_died(context, event))
        return
    process = job.process(event.role, event.index)
    if process is not None and membership.take_end(context, process, event):
        return
    if process is None or process.instance != event.instance or process.over:
        raise EventRefused(f"job {job.number}: the end of {event.instance} is reported, but it is not a live process")
    if job.state in JOB_OVER or process.state is ProcessState.FINISHED:
        context.move_process(process, ProcessState.STOPPED, event.ended)
        context.return_slots()
    else:
        lose_process(context, process, event.ended, failed=event.status > 0, is_lost=event.is_agent_lost)


def lose_process(context: Context, process: Process, why: str, *, failed: bool = False, is_lost: bool = False) -> None:
    """A process of a live job is lost. ``why`` completes the sentence "w3 ...".

    It is restarted as often as the spec allows, except if it ``failed`` by itself before the job had started, since it
    would only fail again. ``is_lost``: its agent is unreachable.
    """
    job = context.job
    if isinstance(process, Server) and placing.let_server_go(context, process, why):
        return
    counted = isinstance(process, Worker) and job.counts(process.index)
    is_back = _end_process(context, process, why, failed=failed, is_lost=is_lost)
    if isinstance(process, Server):
        _lose_server(context, process, why, is_back=is_back)
    elif _holds_the_last(context, counted=counted) and _can_start_again(context):
        recovery.roll_back(context, f"{process.title} {why}, the last that had the parameters")
    elif not _can_go_on(context, process, gone=int(counted)):
        before = " before the job had begun" if job.state is JobState.STARTING else f"; {_who_is_left(context)}"
        context.end_job(JobState.FAILED, f"{process.title} {why}{before}")
    elif job.state is JobState.STARTING or job.starts.is_rebuilding:
        starting.begin_when_ready(context)
    elif isinstance(process, Worker) and counted:
        go_on_without(context, {process.index: why}, why)


def _end_process(context: Context, process: Process, why: str, *, failed: bool, is_lost: bool) -> bool:
    """A process has ended; whether it will be restarted."""
    is_back = _may_return(context, process, failed=failed) and restarts.plan_restart(context, process, is_lost=is_lost)
    context.move_process(process, ProcessState.LOST, restarts.end_reason(context, process, why))
    context.stop_process(process, why)
    if isinstance(process, Worker):
        membership.give_slot_back(context, process)
    return is_back


def go_on_without(context: Context, gone: Mapping[int, str], why: str) -> None:
    """The others continue in a new generation, from the open iteration on. See ``membership.depart``."""
    membership.depart(context, gone, why)
    for rank in gone:
        recovery.on_worker_gone(context, context.job.workers[rank])
    iterations.complete(context)
    membership.admit_late_joiners(context)
    membership.reconsider(context)
    granting.finish_if_all_have(context)


def on_exclusion_requested(context: Context, event: ExclusionRequested) -> None:
    """The worker's process ends now, and the others share its samples."""
    worker = membership.exclude(context, event)
    if context.job.counts(worker.index):
        why = context.job.requests.left_out[worker.index].reason
        go_on_without(context, {worker.index: why}, why)


def _who_is_left(context: Context) -> str:
    left, least = len(context.job.live_workers), context.spec.elastic.minimum_workers or 1
    if context.spec.reduces and not context.job.generation.roster[1:]:
        return "no process is left that has the parameters"
    if not left:
        return "no worker is left"
    return f"{number_of(left, 'worker')} {being(left)} left, {least} {being(least)} needed"


def _holds_the_last(context: Context, *, counted: bool) -> bool:
    """Whether only workers of the current generation have the parameters."""
    job = context.job
    return (
        context.spec.workers_hold
        and counted
        and len(job.generation.roster) == 1
        and job.state is not JobState.FINISHING
    )


def _can_start_again(context: Context) -> bool:
    """Whether there is a checkpoint to restore and there are workers for it, when the only one is gone."""
    begun = context.job.state in (JobState.RUNNING, JobState.PAUSED) and not context.job.starts.is_rebuilding
    return begun and recovery.rollback_target(context) is not None and membership.may_be_enough(context, without=1)


def _may_return(context: Context, process: Process, *, failed: bool) -> bool:
    job = context.job
    if isinstance(process, Worker):
        alone = (
            job.starts.is_rebuilding
            or not job.generation.number
            or _holds_the_last(context, counted=job.counts(process.index))
        )
        if process.index in job.requests.left_out or (not context.spec.workers_can_join and not alone):
            return False
    if job.state is JobState.FINISHING:
        return isinstance(process, Server)
    return not (failed and job.state is JobState.STARTING)


def _can_go_on(context: Context, process: Process, *, gone: int) -> bool:
    """Whether the job continues without this process, one of ``gone`` that are lost from the roster."""
    job = context.job
    if job.state is JobState.FINISHING:
        return len(job.generation.roster) > gone or not gone
    if job.state is JobState.STARTING and process.title not in job.starts.revivals:
        return False
    return membership.can_recover(context, without=gone)


def _lose_server(context: Context, server: Server, why: str, *, is_back: bool) -> None:
    job = context.job
    if job.state is JobState.FINISHING and (job.end.model_saved or not job.starts.at_work):
        granting.finish_without_checkpoint(context)
        return
    if not is_back:
        before = " before the job had begun" if job.state is JobState.STARTING else "; the parameters it held are lost"
        context.end_job(JobState.FAILED, f"{server.title} {why}{before}")
    elif job.state is JobState.STARTING or job.starts.is_rebuilding:
        starting.begin_when_ready(context)
    else:
        placing.on_server_lost(context, server)
        if not recovery.begin_refill(context, server, f"{server.title} {why}"):
            recovery.roll_back(context, f"{server.title} {why}")


def _check_assignments(context: Context, assignments: list[Assignment]) -> None:
    """All servers and, if the spec allows to start with fewer, at least the minimum number of workers, by rank."""
    spec = context.spec
    given = [(assignment.role, assignment.index) for assignment in assignments]
    workers = [index for role, index in given if role == "worker"]
    servers = [index for role, index in given if role == "server"]
    least = spec.elastic.minimum_workers or spec.workers
    fits = least <= len(workers) <= spec.workers and sorted(workers) == list(range(len(workers)))
    if not fits or sorted(servers) != list(range(spec.servers)):
        raise EventRefused(
            f"job {context.job.number}: slots for {len(given)} processes, "
            f"expected one for each of {spec.workers} workers and {spec.servers} servers"
        )


def next_deadline(job: Job) -> int | None:
    """The next deadline, in milliseconds of the log's clock, or None."""
    if job.state in JOB_OVER:
        return job.since_ms + SLOTS_RETURN_MS if job.holds_slots else None
    if job.spec is not None and job.spec.attached:
        return min([*attached.deadlines_ms(job), *_limit_ms(job)], default=None)
    processes = itertools.chain(job.workers.values(), job.servers.values())
    times = [_dead_at(job, process) for process in processes if process.state in AT_WORK]
    times += _limit_ms(job)
    times += restarts.next_restarts_ms(job)
    # One that has passed may stay as it is.
    once = (starting.enough_at_ms(job), _look_ms(job), job.end.by_ms, job.requests.join_by_ms)
    times += [due_ms for due_ms in once if due_ms and due_ms > job.starts.looked_ms]
    return min(times, default=None)


def _limit_ms(job: Job) -> list[int]:
    """When the job has run for its time limit."""
    if job.running_ms is None or job.spec is None or job.spec.stop.seconds is None:
        return []
    limit = job.running_ms + job.paused_ms + int(job.spec.stop.seconds * 1000)
    return [limit] if job.end.stop_at is None and job.state is not JobState.PAUSED else []


def _look_ms(job: Job) -> int | None:
    """While processes start, their agents are checked as often as heartbeats."""
    return job.starts.looked_ms + SILENCE_MS if job.starts.starting and job.starts.looked_ms else None


def deadline_after(job: Job, event: WorkerMessageReceived | ServerMessageReceived, known_ms: int | None) -> int | None:
    """``next_deadline`` or earlier, at constant cost, if only ``event`` happened since ``known_ms`` was computed.

    A heartbeat only postpones deadlines, and an early deadline does no harm, so none is computed for it. But a process
    that has sent a hello has a shorter deadline from then on.
    """
    if not isinstance(event.message, (WorkerHello, ServerHello)):
        return known_ms
    process = job.workers.get(event.rank) if isinstance(event, WorkerMessageReceived) else job.servers.get(event.index)
    if process is None or process.state not in AT_WORK:
        return known_ms
    dead_ms = _dead_at(job, process)
    return dead_ms if known_ms is None else min(known_ms, dead_ms)


def on_time_passed(context: Context, event: TimePassed) -> None:
    """Declare lost processes, end what has timed out, release slots that were held for too long."""
    job, now_ms = context.job, context.now_ms
    if event.is_look:
        granting.recheck(context)
        return
    live = job.live_processes
    for process in live:
        seen_ms = min(event.seen.get(f"{process.role}:{process.index}:{process.instance}", 0), now_ms)
        if seen_ms > process.seen_ms:
            process.seen_ms = seen_ms
    if job.state in JOB_OVER:
        if context.now_ms >= job.since_ms + SLOTS_RETURN_MS:
            context.return_slots(late=True)
        return
    if not context.mode.owns_processes:
        attached.note_lease(job, event.seen)
        attached.on_script_ended(context, scripts.check(context))
        if job.state not in JOB_OVER:
            attached.check_ranks(context)
            _end_after_seconds(context)
        return
    # After an outage of the control plane, machines also get time to reconnect.
    was_ours = context.now_ms < job.resumed_ms + GRACE_MS
    job.starts.looked_ms, job.starts.away = context.now_ms, [] if was_ours else sorted(event.away)
    _declare_dead(context, live)
    if job.state not in JOB_OVER:
        restarts.start_due(context)
        _begin_with_fewer(context)
        _end_after_seconds(context)
        granting.finish_if_all_have(context)
    if job.state not in JOB_OVER:
        granting.recheck(context)


def on_resumed(context: Context, event: ControlPlaneResumed) -> None:
    """Restart deadlines after an outage of the control plane."""
    context.job.resumed_ms = context.now_ms
    context.job.starts.away = []


def _declare_dead(context: Context, live: Sequence[Process]) -> None:
    """Processes of one machine are declared lost together, before any is restarted."""
    job = context.job
    dead = [each for each in live if each.state in AT_WORK and context.now_ms >= _dead_at(job, each)]
    _lose_together(context, [each for each in dead if isinstance(each, Worker) and job.counts(each.index)])
    for process in dead:
        # Losing a server ends every process, including those of this list.
        if job.state in JOB_OVER:
            return
        if process.state not in AT_WORK:
            continue
        is_lost = process.agent in job.starts.away
        if process.state is not ProcessState.ORDERED:
            lose_process(context, process, _silence(context, process), is_lost=is_lost)
        elif is_lost:
            lose_process(context, process, "could not start: its machine is unreachable", is_lost=True)
        else:
            lose_process(context, process, f"did not connect within {START_MS / 1000:g} s")


def _lose_together(context: Context, workers: Sequence[Worker]) -> None:
    """Workers of the roster are lost: the others continue in one new generation, not in one for each of them."""
    job = context.job
    if context.spec.workers_hold and len(workers) == len(job.generation.roster):
        workers = workers[:-1]  # the last one that has the parameters decides what follows
    if len(workers) < 2:
        return
    gone = {worker.index: _silence(context, worker) for worker in workers}
    for worker in workers:
        _end_process(context, worker, gone[worker.index], failed=False, is_lost=worker.agent in job.starts.away)
    why = "sent no heartbeat"
    if _can_go_on(context, workers[-1], gone=len(gone)):
        go_on_without(context, gone, why)
    else:
        context.end_job(JobState.FAILED, f"{named([w.title for w in workers])} {why}; {_who_is_left(context)}")


def _silence(context: Context, process: Process) -> str:
    return f"sent no heartbeat for {(context.now_ms - process.seen_ms) / 1000:.1f} s"


def _begin_with_fewer(context: Context) -> None:
    """The wait for processes missing at the start has timed out."""
    job = context.job
    due_ms = starting.enough_at_ms(job)
    if due_ms is not None and context.now_ms >= due_ms and (job.starts.starting or job.starts.revivals):
        starting.begin_when_ready(context)


def _end_after_seconds(context: Context) -> None:
    job, limit_s = context.job, context.spec.stop.seconds
    if job.state is not JobState.RUNNING or job.running_ms is None or limit_s is None or job.end.stop_at is not None:
        return
    ran_s = (context.now_ms - job.running_ms - job.paused_ms) / 1000
    if ran_s >= limit_s:
        granting.stop_soon(context, f"it ran for {ran_s:.1f} s, {limit_s:g} s were requested")


def _dead_at(job: Job, process: Process) -> int:
    starts = process.state is ProcessState.ORDERED and process.agent not in job.starts.away
    silent_ms = process.seen_ms + (START_MS if starts else SILENCE_MS)
    silent_ms += -silent_ms % GRID_MS
    graced_ms = job.resumed_ms + GRACE_MS
    return silent_ms if silent_ms > graced_ms else graced_ms
