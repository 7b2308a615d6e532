"""Workers that come or leave when the job is running: from a stated iteration on, in a generation of its own.

In synchronous modes that is the first iteration for which nobody has leave. Everybody stops before it, so the roster
changes between two iterations and each of them is made by one roster. In asynchronous modes a worker joins at once,
and leaves at its next boundary. Where nobody is left who counts, the servers say how far their blocks are.
"""

from controlplane.core import changes, flags, iterations, own_data, pausing, roster, standing
from controlplane.core.handling import Handling
from controlplane.core.leases import raise_to
from controlplane.core.records import Worker
from controlplane.core.roster import HERE
from controlplane.core.state import Job, Round
from controlplane.core.states import JOB_OVER, JobState, ProcessState
from controlplane.core.wording import being, number_of


def on_hello(handling: Handling, worker: Worker) -> None:
    """A worker that does not count is here: let it in when that can be."""
    job = handling.job
    if job.state is JobState.FINISHING or _is_late(handling) or not _has_data(handling, worker):
        return
    if job.requests.join_at is None:
        job.requests.join_at = soonest(handling)
    if _entrance(handling) is None:
        reconsider(handling)


def _is_late(handling: Handling) -> bool:
    """Whether the others end without the worker. Where nobody counts any more, it comes to save the parameters."""
    job = handling.job
    if not job.generation.roster or job.end.stop_at is None:
        return False
    # Without lockstep a job that has an end hands out nothing more.
    return handling.chosen.gate is not None or job.end.stop_at <= soonest(handling)


def _has_data(handling: Handling, worker: Worker) -> bool:
    """Whether the data can be divided among one more; the job goes on without a worker for whom there are none."""
    job, room = handling.job, own_data.room(handling)
    if room is None or len(job.generation.roster) + len(newcomers(job)) <= room:
        return True
    samples, workers = number_of(room, "sample"), number_of(len(job.generation.roster), "worker")
    divided = f"{job.synchronization.data.name} divides {samples} among {workers} already"
    why = f"has no sample to draw: {divided}; change data to shared, or add data"
    handling.move_process(worker, ProcessState.STOPPED, why)
    handling.stop_process(worker, f"{worker.title} {why}")
    return False


def let_in_latecomers(handling: Handling) -> None:
    """Who was not let in since the others had leave to the end has to go on where all of those are gone."""
    job = handling.job
    if not job.generation.roster and newcomers(job):
        job.requests.join_at = soonest(handling)


def admit(handling: Handling) -> None:
    """Let those in and out who wait, if the time has come; called after each event while there may be some."""
    job = handling.job
    if job.state in JOB_OVER or job.lives.is_rebuilding:
        job.requests.join_at = None
        return
    waiting, leaving = newcomers(job), leavers(job)
    if not waiting and not leaving:
        job.requests.join_at = None
        reconsider(handling)
        return
    first = _entrance(handling)
    ready = [rank for rank in leaving if handling.chosen.gate is None or _is_at_boundary(job, rank)]
    if first is not None and (waiting or ready):
        _turn_over(handling, waiting, ready, first)


def newcomers(job: Job) -> list[int]:
    """Ranks of workers that are here and do not count."""
    return [rank for rank, worker in sorted(job.workers.items()) if worker.state in HERE and not job.counts(rank)]


def leavers(job: Job) -> list[int]:
    """Ranks of workers that count and are to leave; at the job's end all leave together."""
    if not job.requests.left_out or job.state is JobState.FINISHING:
        return []
    return [rank for rank in job.generation.roster if rank in job.requests.left_out]


def _is_at_boundary(job: Job, rank: int) -> bool:
    """Whether an asynchronous worker has finished an iteration since it was told to leave, or stands."""
    worker = job.workers[rank]
    at = standing.stand(worker)
    return worker.is_held or at > job.requests.left_out[rank].after or at >= worker.granted


def reconsider(handling: Handling) -> None:
    """Whether enough workers are here for the job to go on; it pauses or resumes by itself."""
    job, spec = handling.job, handling.spec
    if job.state not in (JobState.RUNNING, JobState.PAUSED) or job.lives.is_rebuilding:
        return
    here, least = len(job.generation.roster) + len(newcomers(job)), spec.elastic.minimum_workers or 1
    if here < least:
        pausing.pause(handling, "workers", _here_of(here, least))
    elif job.generation.roster:
        pausing.lift(handling, "workers", _here_of(here, least))
    if "limits" in job.pauses and job.generation.roster and limits_allow(handling, here):
        pausing.lift(handling, "limits", f"{number_of(here, 'worker')} can share {_batch_of(handling, here)} samples")


def _here_of(here: int, least: int) -> str:
    return f"{number_of(here, 'worker')} {being(here)} here, at least {least} {being(least)} needed"


def can_recover(handling: Handling, *, without: int = 0) -> bool:
    """Whether enough workers are here, or may be again, when so many of the roster are gone.

    Where workers hold the parameters it takes one who counts, until all begin anew.
    """
    job = handling.job
    if (
        handling.spec.workers_hold
        and job.generation.number
        and not job.lives.is_rebuilding
        and len(job.generation.roster) <= without
    ):
        return False
    return may_be_enough(handling, without=without)


def may_be_enough(handling: Handling, *, without: int) -> bool:
    """Whether enough workers are here or about to come, whatever they know, when so many of the roster are gone."""
    job = handling.job
    coming = {title for title in (*job.lives.starting, *job.lives.revivals) if title[0] == "w"}
    coming |= {job.workers[rank].title for rank in newcomers(job)}
    return len(job.generation.roster) - without + len(coming) >= (handling.spec.elastic.minimum_workers or 1)


def _entrance(handling: Handling) -> int | None:
    """The iteration from which newcomers count, once it has come."""
    job = handling.job
    if handling.chosen.gate is not None:
        return soonest(handling)
    if not job.generation.roster:
        servers = job.live_servers
        # A server that was lost says how far it is only once it has begun again with its blocks.
        agreed = (
            bool(servers)
            and job.refilling.current is None
            and all(server.generation >= job.generation.number for server in servers)
        )
        return max(server.highest for server in servers) if agreed else None
    if job.hold.sequence is not None and changes.all_stand(job):
        _take_leave_back(job)
    if job.requests.join_at is not None:
        job.requests.join_at = max(job.requests.join_at, soonest(handling))
    return (
        job.requests.join_at
        if job.requests.join_at is not None and job.round.completed >= job.requests.join_at - 1
        else None
    )


def soonest(handling: Handling) -> int:
    """The first iteration for which nobody has leave; for an asynchronous job, the one of the slowest."""
    job = handling.job
    if handling.chosen.gate is not None:
        return (
            min((standing.stand(job.workers[rank]) for rank in job.generation.roster), default=job.round.completed) + 1
        )
    return max((job.workers[rank].granted for rank in job.generation.roster), default=job.round.completed) + 1


def _take_leave_back(job: Job) -> None:
    """Everybody stands at a boundary: leave beyond the furthest of them was not used."""
    furthest = max(standing.stand(job.workers[rank]) for rank in job.generation.roster)
    for rank in job.generation.roster:
        worker = job.workers[rank]
        worker.watermark = worker.granted = min(worker.granted, max(furthest, standing.stand(worker)))
    job.requests.join_at = furthest + 1


def _turn_over(handling: Handling, ranks: list[int], leaving: list[int], first: int) -> None:
    """Those of ``ranks`` count from ``first`` on, those who are ``leaving`` no longer."""
    job = handling.job
    job.requests.join_at = None
    if handling.chosen.gate is None and not job.generation.roster:
        _skip_to(job, first)
    for rank in ranks:
        worker = job.workers[rank]
        worker.done = first - 1
        worker.skip_to = first
        raise_to(worker, first - 1)
        if handling.chosen.gate is not None and job.end.stop_at is not None:
            worker.stop_at = first
        flags.close_flag(handling, rank, "lost", f"{worker.title} counts again from iteration {first} on")
    job.hold.is_quiesced = False
    told = [f"{_named(ranks)} {'counts' if len(ranks) == 1 else 'count'} from iteration {first} on"] if ranks else []
    for rank in leaving:
        _let_out(handling, job.workers[rank])
        told.append(f"w{rank} {job.requests.left_out[rank].reason}")
    members = sorted({*job.generation.roster, *ranks} - {*leaving})
    roster.begin_generation(handling, members, first_iteration=first, reason="; ".join(told))
    if leavers(job):
        job.requests.join_at = soonest(handling)
    iterations.complete(handling)
    reconsider(handling)


def _let_out(handling: Handling, worker: Worker) -> None:
    why = handling.job.requests.left_out[worker.index].reason
    handling.move_process(worker, ProcessState.STOPPED, why)
    handling.stop_process(worker, why)
    roster.forget(handling, worker, why)


def _named(ranks: list[int]) -> str:
    return ", ".join(f"w{rank}" for rank in ranks)


def _skip_to(job: Job, first: int) -> None:
    """Iterations that nobody reported are not reported any more; their samples are processed under later numbers."""
    open_iteration = job.round.completed + 1
    position = job.samples.origin_position + (open_iteration - job.samples.origin_iteration) * job.width
    job.samples.origin_iteration, job.samples.origin_position = first, position
    if job.end.stop_at is not None:
        job.end.stop_at += first - open_iteration
    job.round = Round(completed=first - 1)
    job.updates.skip_to = first


def _batch_of(handling: Handling, workers: int) -> int:
    spec = handling.spec
    return workers * spec.usual_share if spec.elastic.global_batch == "scale" else spec.global_batch


def limits_allow(handling: Handling, workers: int) -> bool:
    """Whether so many workers can share the samples of an iteration."""
    limits, total = handling.spec.limits, _batch_of(handling, workers)
    return workers * limits.minimum <= total and (limits.maximum is None or total <= workers * limits.maximum)
