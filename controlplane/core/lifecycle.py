"""A job from submission to slots to running processes, and what follows when one of them is gone."""

from controlplane.core import changes, ending, iterations, roster
from controlplane.core.commands import MoveJob, ReleaseSlots, StartProcess
from controlplane.core.events import Assignment, EngineFailed, JobSubmitted, ProcessDied, SlotsAssigned, StopRequested
from controlplane.core.handling import EventRefused, Handling
from controlplane.core.state import Process, Server, Worker
from controlplane.core.states import JOB_OVER, JobState, ProcessState


def on_submitted(handling: Handling, event: JobSubmitted) -> None:
    """The job exists and waits for slots."""
    job, spec = handling.job, event.spec
    if job.spec is not None:
        raise EventRefused(f"job {job.number}: submitted twice")
    job.spec = spec
    job.synchronization = spec.synchronization
    job.since_ms = handling.now_ms
    awaited = f"{spec.workers} worker slots and {spec.servers} server slots"
    handling.give(MoveJob, "submitted", state=JobState.SUBMITTED, awaited=awaited)


def on_slots_assigned(handling: Handling, event: SlotsAssigned) -> None:
    """Start every process of the job on its slot."""
    job, spec = handling.job, handling.spec
    if job.state in JOB_OVER and not job.holds_slots:
        handling.give(ReleaseSlots, f"the slots came when the job was {job.state}")
        return
    if job.state is not JobState.SUBMITTED:
        raise EventRefused(f"job {job.number}: slots were assigned, but it is {job.state}")
    _check_assignments(handling, event.assignments)
    job.holds_slots = True
    machines = len({assignment.agent for assignment in event.assignments})
    where = "one machine" if machines == 1 else f"{machines} machines"
    handling.move_job(JobState.SCHEDULED, f"{len(event.assignments)} slots on {where} are reserved")
    for assignment in event.assignments:
        _start(handling, assignment)
    awaited = f"hello of {spec.workers} workers and {spec.servers} servers"
    handling.move_job(JobState.STARTING, "its processes were ordered", awaited=awaited)


def on_stop_requested(handling: Handling, event: StopRequested) -> None:
    """End the job now, whatever it is doing."""
    if handling.job.state in JOB_OVER:
        raise EventRefused(f"job {handling.job.number}: stop by {event.actor}, but it is {handling.job.state}")
    ending.end(handling, JobState.CANCELLED, f"stopped by {event.actor}")


def on_engine_failed(handling: Handling, event: EngineFailed) -> None:
    """A fault of the control plane ends the one job that it struck."""
    if handling.job.state in JOB_OVER:
        raise EventRefused(f"job {handling.job.number}: it failed at {event.entry}, but it is {handling.job.state}")
    ending.end(handling, JobState.FAILED, f"the control plane failed at {event.entry}: {event.reason}")


def on_process_died(handling: Handling, event: ProcessDied) -> None:
    """A process is gone: go on without it, or end the job, or take note."""
    job = handling.job
    process = job.process(event.role, event.index)
    if process is None or process.instance != event.instance or process.over:
        raise EventRefused(f"job {job.number}: the end of {event.instance} is reported, but it is not a live process")
    ended = _how_it_ended(event)
    if job.state in JOB_OVER or process.state is ProcessState.FINISHED:
        handling.move_process(process, ProcessState.STOPPED, ended)
        ending.return_slots(handling)
    else:
        lose(handling, process, ended)


def lose(handling: Handling, process: Process, why: str) -> None:
    """A process of a live job is dead. ``why`` completes the sentence "w3 ..."."""
    job = handling.job
    handling.move_process(process, ProcessState.DEAD, why)
    handling.stop_process(process, why)
    if isinstance(process, Server):
        ending.end(handling, JobState.FAILED, f"{process.title} {why}; the parameters it held are lost")
    elif job.state is JobState.STARTING:
        ending.end(handling, JobState.FAILED, f"{process.title} {why} before the job had begun")
    elif isinstance(process, Worker):
        roster.depart(handling, process, why)
        if job.state in JOB_OVER:
            return
        iterations.complete(handling)
        changes.settle(handling)
        ending.finish_if_all_have(handling)


def _start(handling: Handling, assignment: Assignment) -> None:
    job = handling.job
    title = f"{assignment.role[0]}{assignment.index}"
    job.lives[title] = life = job.lives.get(title, 0) + 1
    kind = Worker if assignment.role == "worker" else Server
    process = kind(
        role=assignment.role,
        index=assignment.index,
        instance=f"{title}.{job.incarnation}.{life}",
        agent=assignment.agent,
        slot=assignment.slot,
        emulate=assignment.emulate,
        state=ProcessState.ORDERED,
        since_ms=handling.now_ms,
        seen_ms=handling.now_ms,
    )
    if isinstance(process, Worker):
        job.workers[process.index] = process
    elif isinstance(process, Server):
        job.servers[process.index] = process
    reason = f"{title} goes to slot {assignment.slot} of agent {assignment.agent}"
    handling.give(
        StartProcess,
        reason,
        role=process.role,
        index=process.index,
        instance=process.instance,
        agent=process.agent,
        slot=process.slot,
        emulate=process.emulate,
    )
    handling.tell_process(process, reason)


def _check_assignments(handling: Handling, assignments: list[Assignment]) -> None:
    spec = handling.spec
    wanted = {("worker", rank) for rank in range(spec.workers)} | {("server", index) for index in range(spec.servers)}
    given = [(assignment.role, assignment.index) for assignment in assignments]
    if set(given) != wanted or len(given) != len(wanted):
        raise EventRefused(
            f"job {handling.job.number}: slots for {len(given)} processes, "
            f"expected one for each of {spec.workers} workers and {spec.servers} servers"
        )


def _how_it_ended(event: ProcessDied) -> str:
    """A process that failed says why in its last line; what one said before it ended otherwise is no reason."""
    if event.status == 0:
        return "ended by itself"
    if event.status < 0:
        return f"was ended by signal {-event.status}"
    last_line = event.detail.strip().rpartition("\n")[2]
    return f"ended with status {event.status}" + (f" ({last_line})" if last_line else "")
