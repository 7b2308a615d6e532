"""Workers that somebody leaves out: at once (excluded), or at the end of what they have leave for (drained).

One that is excluded keeps its slot, since it may be included again; one that is drained gives it back. Neither is
started again by itself. A drained worker leaves between two iterations, as newcomers join (``arrivals``): nothing of
its work is lost. In asynchronous modes that is at its own next boundary.
"""

from controlplane.core import arrivals, departures, standing
from controlplane.core.commands import LeaveOut, ReleaseSlot, TakeBack
from controlplane.core.events import DrainRequested, ExclusionRequested, InclusionRequested, ProcessDied
from controlplane.core.handling import EventRefused, Handling
from controlplane.core.records import LeftOut, Process, Revival, Worker
from controlplane.core.state import Job
from controlplane.core.states import JobState, ProcessState
from controlplane.core.wording import being, number_of


def on_exclusion_requested(handling: Handling, event: ExclusionRequested) -> None:
    """The worker's process ends now, and the others share its samples."""
    job, asked = handling.job, f"job {handling.job.number}: exclusion of w{event.rank} by {event.actor}"
    worker = _worker(handling, event.rank, asked)
    _check_takes_part(job, worker, asked)
    _check_enough(handling, worker, asked)
    why = f"was excluded by {event.actor}"
    job.requests.left_out[worker.index] = LeftOut(reason=why)
    handling.give(LeaveOut, f"{worker.title} {why}: it takes part again when it is included", rank=worker.index)
    _end(handling, worker, why)


def drain(handling: Handling, event: DrainRequested) -> None:
    """The worker leaves at the first boundary that everybody can agree on."""
    job, asked = handling.job, f"job {handling.job.number}: drain of w{event.index} by {event.actor}"
    worker = _worker(handling, event.index, asked)
    _check_takes_part(job, worker, asked)
    if worker.index in job.requests.left_out:
        raise EventRefused(
            f"{asked}, but it {job.requests.left_out[worker.index].reason} already and is about to leave"
        )
    _check_enough(handling, worker, asked)
    why, counts = f"was drained by {event.actor}", job.counts(worker.index)
    first = arrivals.soonest(handling) if counts else None
    if first is not None and job.end.stop_at is not None and job.end.stop_at <= first:
        raise EventRefused(
            f"{asked}, but the job ends before iteration {job.end.stop_at}, which is sooner than it could"
        )
    job.requests.left_out[worker.index] = LeftOut(reason=why, after=standing.stand(worker), returns_slot=True)
    if first is None:
        handling.give(LeaveOut, f"{worker.title} {why} before it counted", rank=worker.index)
        _end(handling, worker, why)
        return
    when = "at its next boundary" if handling.chosen.gate is not None else f"before iteration {first}"
    handling.give(LeaveOut, f"{worker.title} {why}: it leaves {when}", rank=worker.index, iteration=first)
    if job.requests.join_at is None:
        job.requests.join_at = first


def on_inclusion_requested(handling: Handling, event: InclusionRequested) -> None:
    """The worker is started again on its slot or another, and joins; one that is about to leave stays."""
    job, asked = handling.job, f"job {handling.job.number}: inclusion of w{event.rank} by {event.actor}"
    worker = _worker(handling, event.rank, asked)
    if not worker.over:
        if worker.index not in job.requests.left_out:
            raise EventRefused(f"{asked}, but it takes part already")
        del job.requests.left_out[worker.index]
        handling.give(TakeBack, f"{worker.title} stays, by {event.actor}", rank=worker.index)
        return
    if worker.title in job.lives.revivals:
        raise EventRefused(f"{asked}, but it is about to be started again already")
    if handling.spec.server_mode == "aggregating":
        raise EventRefused(f"{asked}, but with server_mode aggregating nobody can join: only workers have parameters")
    job.requests.left_out.pop(worker.index, None)
    job.lives.restarts.pop(worker.title, None)
    job.lives.revivals[worker.title] = Revival(number=0, due_ms=handling.now_ms, wants_slot=True)
    why = f"was included by {event.actor}"
    handling.give(TakeBack, f"{worker.title} {why}", rank=worker.index)
    handling.tell_process(worker, f"{why}: it starts when its slot, or another, is free")


def take_end(handling: Handling, process: Process, event: ProcessDied) -> bool:
    """Whether this is the end of a process that was told to leave; its slot is given back if it is to be."""
    left = handling.job.requests.left_out.get(process.index)
    if left is None or not isinstance(process, Worker) or not process.over or process.instance != event.instance:
        return False
    give_slot_back(handling, process)
    return True


def give_slot_back(handling: Handling, worker: Worker) -> None:
    """A worker that has left needs its slot no longer, unless it may return to it."""
    left = handling.job.requests.left_out.get(worker.index)
    if left is not None and left.returns_slot:
        left.returns_slot = False
        handling.give(ReleaseSlot, f"{worker.title} {left.reason}", role="worker", index=worker.index)


def _worker(handling: Handling, rank: int, asked: str) -> Worker:
    job = handling.job
    if job.state not in (JobState.RUNNING, JobState.PAUSED):
        raise EventRefused(f"{asked}, but the job is {job.state}: it must be running or paused")
    if job.lives.is_rebuilding:
        raise EventRefused(f"{asked}, but all processes begin anew: ask again when the job runs")
    worker = job.workers.get(rank)
    if worker is None:
        raise EventRefused(f"{asked}, but it has only w0 to w{max(job.workers)}")
    return worker


def _check_takes_part(job: Job, worker: Worker, asked: str) -> None:
    if not worker.over or worker.title in job.lives.revivals:
        return
    left = job.requests.left_out.get(worker.index)
    raise EventRefused(f"{asked}, but it {left.reason if left else 'is lost and not started again'} already")


def _check_enough(handling: Handling, worker: Worker, asked: str) -> None:
    """Whoever is left must be enough, and able to share the samples."""
    job, spec = handling.job, handling.spec
    counting = [rank for rank in job.generation.roster if rank not in job.requests.left_out and rank != worker.index]
    left = len(counting) + sum(rank != worker.index for rank in arrivals.newcomers(job))
    least = spec.elastic.minimum_workers or 1
    if left < least:
        found = f"{number_of(left, 'worker')} would be left, and at least {least} {being(least)} needed"
        raise EventRefused(f"{asked}, but {found}")
    if spec.reduces and not counting:
        raise EventRefused(f"{asked}, but nobody else has the parameters yet")
    if not arrivals.limits_allow(handling, left):
        limits = f"limits of {spec.limits.minimum} to {spec.limits.maximum or 'any number of'} samples"
        raise EventRefused(f"{asked}, but the {left} that are left could not share the batch within {limits}")


def _end(handling: Handling, worker: Worker, why: str) -> None:
    job = handling.job
    counted = job.counts(worker.index)
    if job.lives.revivals.pop(worker.title, None) is not None:
        handling.tell_process(worker, why)
    elif not worker.over:
        handling.move_process(worker, ProcessState.STOPPED, why)
        handling.stop_process(worker, why)
    if counted:
        departures.go_on_without(handling, worker, why)
