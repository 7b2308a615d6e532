"""A job from submission to slots to running processes, and what follows when one of them is gone."""

import re
from typing import Final

from controlplane.core import (
    arrivals,
    departures,
    ending,
    exclusion,
    moving,
    refill,
    revival,
    rollback,
    roster,
    scaling,
)
from controlplane.core.commands import MoveJob, ReleaseSlots
from controlplane.core.events import Assignment, EngineFailed, JobSubmitted, ProcessDied, SlotsAssigned, StopRequested
from controlplane.core.handling import EventRefused, Handling
from controlplane.core.records import Process, Server, Worker
from controlplane.core.states import JOB_OVER, JobState, ProcessState
from controlplane.core.wording import being, number_of

_PATH_OF_ERROR: Final = re.compile(r"^(?:\w+\.)+(?=\w+: )")
"""Where the class of an error is to be found, as tracebacks put it before its name."""


def on_submitted(handling: Handling, event: JobSubmitted) -> None:
    """The job exists and waits for slots."""
    job, spec = handling.job, event.spec
    if job.spec is not None:
        raise EventRefused(f"job {job.number}: submitted twice")
    job.spec, job.salt = spec, event.salt
    job.synchronization = spec.synchronization
    job.since_ms = handling.now_ms
    awaited = f"{spec.workers} worker slots and {spec.servers} server slots"
    handling.give(MoveJob, "submitted", state=JobState.SUBMITTED, awaited=awaited)


def on_slots_assigned(handling: Handling, event: SlotsAssigned) -> None:
    """Start processes on their slots: all at the beginning, later those that wait for one."""
    job = handling.job
    if job.state in JOB_OVER and not job.holds_slots:
        handling.give(ReleaseSlots, f"the slots came when the job was {job.state}")
        return
    if job.state in (JobState.STARTING, JobState.RUNNING, JobState.PAUSED):
        if scaling.takes(handling, event.assignments):
            revival.start(handling, event.assignments[0])
        elif not revival.take_slots(handling, event.assignments):
            raise EventRefused(f"job {job.number}: slots were assigned, but no process waits for one")
        return
    if job.state is not JobState.SUBMITTED:
        raise EventRefused(f"job {job.number}: slots were assigned, but it is {job.state}")
    _begin(handling, event.assignments)


def _begin(handling: Handling, assignments: list[Assignment]) -> None:
    job, spec = handling.job, handling.spec
    _check_assignments(handling, assignments)
    job.holds_slots = True
    machines = len({assignment.agent for assignment in assignments})
    where = "one machine" if machines == 1 else f"{machines} machines"
    handling.move_job(JobState.SCHEDULED, f"{len(assignments)} slots on {where} are reserved")
    for assignment in assignments:
        revival.start(handling, assignment)
    for rank in range(spec.workers):
        if rank not in job.workers:
            revival.await_slot(handling, rank)
    awaited = f"hello of {len(assignments) - spec.servers} workers and {spec.servers} servers"
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
    if process is not None and exclusion.take_end(handling, process, event):
        return
    if process is None or process.instance != event.instance or process.over:
        raise EventRefused(f"job {job.number}: the end of {event.instance} is reported, but it is not a live process")
    ended = _how_it_ended(event)
    if job.state in JOB_OVER or process.state is ProcessState.FINISHED:
        handling.move_process(process, ProcessState.STOPPED, ended)
        ending.return_slots(handling)
    else:
        lose(handling, process, ended, failed=event.status > 0, is_lost=event.is_agent_lost)


def lose(handling: Handling, process: Process, why: str, *, failed: bool = False, is_lost: bool = False) -> None:
    """A process of a live job is lost. ``why`` completes the sentence "w3 ...".

    It is started again as often as the spec allows; but one that ``failed`` by itself before the job had begun would
    only fail again. ``is_lost``: its agent is out of reach.
    """
    job = handling.job
    if isinstance(process, Server) and scaling.let_go(handling, process, why):
        return
    counted = isinstance(process, Worker) and job.counts(process.index)
    is_back = _may_return(handling, process, failed=failed) and revival.plan(handling, process, is_lost=is_lost)
    handling.move_process(process, ProcessState.LOST, revival.told(handling, process, why))
    handling.stop_process(process, why)
    if isinstance(process, Worker):
        exclusion.give_slot_back(handling, process)
    if isinstance(process, Server):
        _lose_server(handling, process, why, is_back=is_back)
    elif _holds_the_last(handling, counted=counted) and _can_begin_anew(handling):
        rollback.begin(handling, f"{process.title} {why}, the last that had the parameters")
    elif not _can_go_on(handling, process, counted=counted):
        before = " before the job had begun" if job.state is JobState.STARTING else f"; {_who_is_left(handling)}"
        ending.end(handling, JobState.FAILED, f"{process.title} {why}{before}")
    elif job.state is JobState.STARTING or job.lives.is_rebuilding:
        roster.begin_when_ready(handling)
    elif isinstance(process, Worker) and counted:
        departures.go_on_without(handling, process, why)


def _who_is_left(handling: Handling) -> str:
    left, least = len(handling.job.live_workers), handling.spec.elastic.minimum_workers or 1
    if handling.spec.reduces and not handling.job.generation.roster[1:]:
        return "nobody is left who has the parameters"
    if not left:
        return "no worker is left"
    return f"{number_of(left, 'worker')} {being(left)} left, {least} {being(least)} needed"


def _holds_the_last(handling: Handling, *, counted: bool) -> bool:
    """Whether nobody but a worker that counts has the parameters."""
    job = handling.job
    return (
        handling.spec.workers_hold
        and counted
        and len(job.generation.roster) == 1
        and job.state is not JobState.FINISHING
    )


def _can_begin_anew(handling: Handling) -> bool:
    """Whether there is a checkpoint to go back to, and there are workers to do so, when the only one is gone."""
    begun = handling.job.state in (JobState.RUNNING, JobState.PAUSED) and not handling.job.lives.is_rebuilding
    return begun and rollback.target_of(handling) is not None and arrivals.may_be_enough(handling, without=1)


def _may_return(handling: Handling, process: Process, *, failed: bool) -> bool:
    job = handling.job
    if isinstance(process, Worker):
        alone = (
            job.lives.is_rebuilding
            or not job.generation.number
            or _holds_the_last(handling, counted=job.counts(process.index))
        )
        if process.index in job.requests.left_out or (handling.spec.server_mode == "aggregating" and not alone):
            return False
    if job.state is JobState.FINISHING:
        return isinstance(process, Server)
    return not (failed and job.state is JobState.STARTING)


def _can_go_on(handling: Handling, process: Process, *, counted: bool) -> bool:
    job = handling.job
    if job.state is JobState.FINISHING:
        return len(job.generation.roster) > 1 or not counted
    if job.state is JobState.STARTING and process.title not in job.lives.revivals:
        return False
    gone = 1 if counted else 0
    return arrivals.can_recover(handling, without=gone)


def _lose_server(handling: Handling, server: Server, why: str, *, is_back: bool) -> None:
    job = handling.job
    if job.state is JobState.FINISHING and (job.end.model_saved or not job.lives.at_work):
        ending.finish_without_checkpoint(handling)
        return
    if not is_back:
        before = " before the job had begun" if job.state is JobState.STARTING else "; the parameters it held are lost"
        ending.end(handling, JobState.FAILED, f"{server.title} {why}{before}")
    elif job.state is JobState.STARTING or job.lives.is_rebuilding:
        roster.begin_when_ready(handling)
    else:
        moving.on_server_lost(handling, server)
        if not refill.begin(handling, server, f"{server.title} {why}"):
            rollback.begin(handling, f"{server.title} {why}")


def _check_assignments(handling: Handling, assignments: list[Assignment]) -> None:
    """All servers and, where the spec lets it begin with fewer, at least so many workers, by rank."""
    spec = handling.spec
    given = [(assignment.role, assignment.index) for assignment in assignments]
    workers = [index for role, index in given if role == "worker"]
    servers = [index for role, index in given if role == "server"]
    least = spec.elastic.minimum_workers or spec.workers
    fits = least <= len(workers) <= spec.workers and sorted(workers) == list(range(len(workers)))
    if not fits or sorted(servers) != list(range(spec.servers)):
        raise EventRefused(
            f"job {handling.job.number}: slots for {len(given)} processes, "
            f"expected one for each of {spec.workers} workers and {spec.servers} servers"
        )


def _how_it_ended(event: ProcessDied) -> str:
    """A process that failed says why in its last line; what one said before it ended otherwise is no reason."""
    if event.status == 0:
        return "ended by itself"
    if event.out_of_memory:
        return f"was ended by signal {-event.status}: its machine had run out of memory"
    if event.status < 0:
        return f"was ended by signal {-event.status}"
    last_line = _PATH_OF_ERROR.sub("", event.detail.strip().rpartition("\n")[2])
    return f"ended with status {event.status}" + (f" ({last_line})" if last_line else "")
