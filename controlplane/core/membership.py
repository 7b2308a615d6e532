"""Which workers count, and from which iteration: each join or departure starts a new generation with its own shares.

In synchronous modes that is the first iteration that no worker was granted. All workers stop before it, so the roster
changes between two iterations and each iteration has one roster. In asynchronous modes a worker joins immediately, or
with others that start at the same time, and leaves at its next boundary. If no member is left, the servers report the
versions of their blocks.

A user removes a worker immediately (excluded), or at the end of its grant (drained). An excluded worker keeps its slot,
since it may be included again; a drained one releases it. Neither is restarted automatically. A drained worker leaves
between two iterations, as new workers join: none of its work is lost.
"""

from collections.abc import Mapping
from typing import Final

from controlplane.core import granting, ordering, placing, sharing
from controlplane.core.choices import ImpossibleShares, ShareRequest
from controlplane.core.commands import LeaveOut, ReleaseSlot, SetRoster, TakeBack
from controlplane.core.context import Context, EventRefused, being, named, number_of
from controlplane.core.events import DrainRequested, ExclusionRequested, InclusionRequested, ProcessDied
from controlplane.core.records import LeftOut, Revival
from controlplane.core.state import Generation, Job, Round
from controlplane.core.states import HERE, JOB_OVER, JobState, Process, ProcessState, Worker

GATHER_MS: Final = 1_000
"""How long asynchronous workers that have connected wait for others that start, since each new generation means orders
for everyone."""


def on_hello(context: Context, worker: Worker) -> None:
    """A worker that does not count has connected: let it join as soon as possible."""
    job = context.job
    if job.state is JobState.FINISHING or _is_late(context) or not _has_data(context, worker):
        return
    if job.requests.join_at is None:
        job.requests.join_at = context.mode.soonest(job)
    if not context.mode.joins_together and job.requests.join_by_ms is None:
        job.requests.join_by_ms = context.now_ms + GATHER_MS
        context.has_new_deadline = True
    if _joining_iteration(context) is None:
        reconsider(context)


def _is_late(context: Context) -> bool:
    """Whether the others end without the worker. If no members are left, it joins to save the parameters."""
    job = context.job
    if not job.generation.roster or job.end.stop_at is None:
        return False
    return context.mode.is_too_late(job)


def _has_data(context: Context, worker: Worker) -> bool:
    """Whether the data can be divided among one more worker; the job continues without a worker that would have no
    data.
    """
    job, room = context.job, sharing.most_workers_for_data(context)
    if room is None or len(job.generation.roster) + len(newcomers(job)) <= room:
        return True
    samples, workers = number_of(room, "sample"), number_of(len(job.generation.roster), "worker")
    divided = f"{job.synchronization.data.name} divides {samples} among {workers} already"
    why = f"has no samples: {divided}; change data to shared, or add data"
    context.move_process(worker, ProcessState.STOPPED, why)
    context.stop_process(worker, f"{worker.title} {why}")
    return False


def admit_late_joiners(context: Context) -> None:
    """Late joiners are admitted if all others failed, even if those were granted all iterations up to the end."""
    job = context.job
    if not job.generation.roster and newcomers(job):
        job.requests.join_at = context.mode.soonest(job)


def admit(context: Context) -> bool:
    """Let waiting workers join or leave, if it is time; called after each event while there are any.

    Return whether the roster has changed: iterations may be complete with it, and it must be reconsidered.
    """
    job = context.job
    if job.state in JOB_OVER or job.starts.is_rebuilding:
        job.requests.join_at = None
        return False
    waiting, leaving = newcomers(job), leavers(job)
    if not context.mode.joins_together and _is_late(context):
        waiting = []
    if not waiting and not leaving:
        job.requests.join_at = job.requests.join_by_ms = None
        reconsider(context)
        return False
    if _others_follow(context):
        waiting = []
    first = _joining_iteration(context)
    ready = [rank for rank in leaving if context.mode.may_leave(job, job.workers[rank])]
    if first is None or not (waiting or ready):
        return False
    _change_roster(context, waiting, ready, first)
    return True


def newcomers(job: Job) -> list[int]:
    """Ranks of connected workers that do not count."""
    return [rank for rank, worker in sorted(job.workers.items()) if worker.state in HERE and not job.counts(rank)]


def leavers(job: Job) -> list[int]:
    """Ranks of workers that count and should leave; at the job's end all leave together."""
    if not job.requests.left_out or job.state is JobState.FINISHING:
        return []
    return [rank for rank in job.generation.roster if rank in job.requests.left_out]


def reconsider(context: Context) -> None:
    """Pause or resume the job, depending on whether there are enough workers."""
    job, spec = context.job, context.spec
    if job.state not in (JobState.RUNNING, JobState.PAUSED) or job.starts.is_rebuilding:
        return
    here, least = len(job.generation.roster) + len(newcomers(job)), spec.elastic.minimum_workers or 1
    if here < least:
        granting.pause(context, "workers", _here_of(here, least))
    elif job.generation.roster:
        granting.lift(context, "workers", _here_of(here, least))
    if "limits" in job.pauses and job.generation.roster and limits_allow(context, here):
        granting.lift(context, "limits", f"{number_of(here, 'worker')} can share {_batch_of(context, here)} samples")


def _here_of(here: int, least: int) -> str:
    return f"{number_of(here, 'worker')} {being(here)} available, at least {least} {being(least)} needed"


def can_recover(context: Context, *, without: int = 0) -> bool:
    """Whether enough workers are connected, or may return, when this many of the roster are lost.

    If workers hold the parameters, at least one must count, until all restart.
    """
    job = context.job
    if (
        context.spec.workers_hold
        and job.generation.number
        and not job.starts.is_rebuilding
        and len(job.generation.roster) <= without
    ):
        return False
    return may_be_enough(context, without=without)


def may_be_enough(context: Context, *, without: int) -> bool:
    """Whether enough workers are connected or starting, with or without parameters, when this many of the roster are
    lost.
    """
    job = context.job
    coming = {title for title in (*job.starts.starting, *job.starts.revivals) if title[0] == "w"}
    coming |= {job.workers[rank].title for rank in newcomers(job)}
    return len(job.generation.roster) - without + len(coming) >= (context.spec.elastic.minimum_workers or 1)


def _joining_iteration(context: Context) -> int | None:
    """The iteration from which newcomers count, once it has been reached."""
    job = context.job
    if not context.mode.joins_together:
        return context.mode.soonest(job)
    if not job.generation.roster:
        servers = job.live_servers
        # A replaced server reports its version only once it has its blocks.
        agreed = (
            bool(servers)
            and job.refilling.current is None
            and all(server.generation >= job.generation.number for server in servers)
        )
        return max(server.highest for server in servers) if agreed else None
    if job.hold.sequence is not None and job.is_at_boundary:
        _revoke_grants(job)
    if job.requests.join_at is not None:
        job.requests.join_at = max(job.requests.join_at, context.mode.soonest(job))
    return (
        job.requests.join_at
        if job.requests.join_at is not None and job.round.completed >= job.requests.join_at - 1
        else None
    )


def _others_follow(context: Context) -> bool:
    """Whether asynchronous workers that have connected should join together with others that are starting.

    Not where the job waits for them.
    """
    job = context.job
    if context.mode.joins_together or not job.generation.roster or {"workers", "limits"} & job.pauses.keys():
        return False
    by_ms = job.requests.join_by_ms
    return by_ms is not None and context.now_ms < by_ms and any(title[0] == "w" for title in job.starts.starting)


def _revoke_grants(job: Job) -> None:
    """The job is quiesced: grants beyond the furthest worker were not used."""
    furthest = max(job.workers[rank].last_completed for rank in job.generation.roster)
    for rank in job.generation.roster:
        worker = job.workers[rank]
        worker.watermark = worker.granted = min(worker.granted, max(furthest, worker.last_completed))
    job.requests.join_at = furthest + 1


def _change_roster(context: Context, ranks: list[int], leaving: list[int], first: int) -> None:
    """``ranks`` count from ``first`` on; ``leaving`` no longer do."""
    job = context.job
    job.requests.join_at = None
    if ranks:
        job.requests.join_by_ms = None
    if context.mode.joins_together and not job.generation.roster:
        _skip_to(job, first)
    for rank in ranks:
        worker = job.workers[rank]
        worker.done = first - 1
        worker.skip_to = first
        sharing.raise_watermark(worker, first - 1)
        if context.mode.is_ending(job):
            worker.stop_at = first
        context.close_flag(rank, "lost", f"{worker.title} counts again from iteration {first} on")
    job.hold.is_quiesced = False
    changes = [f"{_named(ranks)} {'counts' if len(ranks) == 1 else 'count'} from iteration {first} on"] if ranks else []
    for rank in leaving:
        _remove(context, job.workers[rank])
        changes.append(f"w{rank} {job.requests.left_out[rank].reason}")
    members = sorted({*job.generation.roster, *ranks} - {*leaving})
    begin_generation(context, members, first_iteration=first, reason="; ".join(changes))
    if leavers(job) or newcomers(job):
        job.requests.join_at = context.mode.soonest(job)


def _remove(context: Context, worker: Worker) -> None:
    why = context.job.requests.left_out[worker.index].reason
    context.move_process(worker, ProcessState.STOPPED, why)
    context.stop_process(worker, why)
    forget(context, worker, why)


def _named(ranks: list[int]) -> str:
    return ", ".join(f"w{rank}" for rank in ranks)


def _skip_to(job: Job, first: int) -> None:
    """Iterations without a report are not reported any more; their samples are processed under later numbers."""
    open_iteration = job.round.completed + 1
    position = job.samples.origin_position + (open_iteration - job.samples.origin_iteration) * job.width
    job.samples.origin_iteration, job.samples.origin_position = first, position
    if job.end.stop_at is not None:
        job.end.stop_at += first - open_iteration
    job.round = Round(completed=first - 1)
    job.updates.skip_to = first


def _batch_of(context: Context, workers: int) -> int:
    spec = context.spec
    return workers * spec.usual_share if spec.elastic.global_batch == "scale" else spec.global_batch


def limits_allow(context: Context, workers: int) -> bool:
    """Whether this many workers can share the samples of an iteration."""
    limits, total = context.spec.limits, _batch_of(context, workers)
    return workers * limits.minimum <= total and (limits.maximum is None or total <= workers * limits.maximum)


def exclude(context: Context, event: ExclusionRequested) -> Worker:
    """End the worker's process now; if it counted, the others continue without it."""
    job, request = context.job, f"job {context.job.number}: exclusion of w{event.rank} by {event.actor}"
    worker = _worker(context, event.rank, request)
    _check_takes_part(job, worker, request)
    _check_enough(context, worker, request)
    why = f"was excluded by {event.actor}"
    job.requests.left_out[worker.index] = LeftOut(reason=why)
    context.emit(LeaveOut, f"{worker.title} {why}: it rejoins when it is included", rank=worker.index)
    _end(context, worker, why)
    return worker


def on_drain_requested(context: Context, event: DrainRequested) -> None:
    """Drain a worker or server: a worker leaves at the first boundary that no worker has passed."""
    if event.role == "server":
        placing.drain_server(context, event)
        return
    job, request = context.job, f"job {context.job.number}: drain of w{event.index} by {event.actor}"
    worker = _worker(context, event.index, request)
    _check_takes_part(job, worker, request)
    if worker.index in job.requests.left_out:
        raise EventRefused(
            f"{request}, but it {job.requests.left_out[worker.index].reason} already and is about to leave"
        )
    _check_enough(context, worker, request)
    why, counts = f"was drained by {event.actor}", job.counts(worker.index)
    first = context.mode.soonest(job) if counts else None
    if first is not None and job.end.stop_at is not None and job.end.stop_at <= first:
        raise EventRefused(
            f"{request}, but the job ends before iteration {job.end.stop_at}, which is sooner than it could"
        )
    job.requests.left_out[worker.index] = LeftOut(reason=why, after=worker.last_completed, returns_slot=True)
    if first is None:
        context.emit(LeaveOut, f"{worker.title} {why} before it counted", rank=worker.index)
        _end(context, worker, why)
        return
    when = context.mode.leaving_sentence(first)
    context.emit(LeaveOut, f"{worker.title} {why}: it leaves {when}", rank=worker.index, iteration=first)
    if job.requests.join_at is None:
        job.requests.join_at = first


def on_inclusion_requested(context: Context, event: InclusionRequested) -> None:
    """Restart the worker on its slot or another, so that it joins; a worker that is about to leave stays."""
    job, request = context.job, f"job {context.job.number}: inclusion of w{event.rank} by {event.actor}"
    worker = _worker(context, event.rank, request)
    if not worker.over:
        if worker.index not in job.requests.left_out:
            raise EventRefused(f"{request}, but it already takes part")
        del job.requests.left_out[worker.index]
        context.emit(TakeBack, f"{worker.title} stays, by {event.actor}", rank=worker.index)
        return
    if worker.title in job.starts.revivals:
        raise EventRefused(f"{request}, but it is already about to be restarted")
    if not context.spec.workers_can_join:
        raise EventRefused(
            f"{request}, but with server_mode aggregating no worker can join: only workers have parameters"
        )
    job.requests.left_out.pop(worker.index, None)
    job.starts.restarts.pop(worker.title, None)
    job.starts.revivals[worker.title] = Revival(number=0, due_ms=context.now_ms, wants_slot=True)
    why = f"was included by {event.actor}"
    context.emit(TakeBack, f"{worker.title} {why}", rank=worker.index)
    context.report_process(worker, f"{why}: it starts when a slot is free")


def take_end(context: Context, process: Process, event: ProcessDied) -> bool:
    """Handle the end of a process that was ordered to leave; its slot is released if requested."""
    left = context.job.requests.left_out.get(process.index)
    if left is None or not isinstance(process, Worker) or not process.over or process.instance != event.instance:
        return False
    give_slot_back(context, process)
    return True


def give_slot_back(context: Context, worker: Worker) -> None:
    """Release the slot of a worker that has left, unless it may return to it."""
    left = context.job.requests.left_out.get(worker.index)
    if left is not None and left.returns_slot:
        left.returns_slot = False
        context.emit(ReleaseSlot, f"{worker.title} {left.reason}", role="worker", index=worker.index)


def _worker(context: Context, rank: int, request: str) -> Worker:
    job = context.job
    if not context.mode.owns_processes:
        raise EventRefused(f"{request}, but its launcher owns the ranks: stop or start it there")
    if job.state not in (JobState.RUNNING, JobState.PAUSED):
        raise EventRefused(f"{request}, but the job is {job.state}: it must be running or paused")
    if job.starts.is_rebuilding:
        raise EventRefused(f"{request}, but all processes restart: retry when the job runs")
    worker = job.workers.get(rank)
    if worker is None:
        raise EventRefused(f"{request}, but it has only w0 to w{max(job.workers)}")
    return worker


def _check_takes_part(job: Job, worker: Worker, request: str) -> None:
    if not worker.over or worker.title in job.starts.revivals:
        return
    left = job.requests.left_out.get(worker.index)
    raise EventRefused(f"{request}, but it {f'{left.reason} already' if left else 'is lost and will not be restarted'}")


def _check_enough(context: Context, worker: Worker, request: str) -> None:
    """The remaining workers must be enough, and able to share the samples."""
    job, spec = context.job, context.spec
    counting = [rank for rank in job.generation.roster if rank not in job.requests.left_out and rank != worker.index]
    left = len(counting) + sum(rank != worker.index for rank in newcomers(job))
    least = spec.elastic.minimum_workers or 1
    if left < least:
        found = f"{number_of(left, 'worker')} would be left, and at least {least} {being(least)} needed"
        raise EventRefused(f"{request}, but {found}")
    if spec.reduces and not counting:
        raise EventRefused(f"{request}, but no other process has the parameters yet")
    if not limits_allow(context, left):
        limits = f"limits of {spec.limits.minimum} to {spec.limits.maximum or 'any number of'} samples"
        raise EventRefused(f"{request}, but the {left} that are left could not share the batch within {limits}")


def _end(context: Context, worker: Worker, why: str) -> None:
    if context.job.starts.revivals.pop(worker.title, None) is not None:
        context.report_process(worker, why)
    elif not worker.over:
        context.move_process(worker, ProcessState.STOPPED, why)
        context.stop_process(worker, why)


def begin_generation(context: Context, ranks: list[int], *, first_iteration: int, reason: str) -> None:
    """From ``first_iteration`` on, ``ranks`` count: new shares, and orders for everyone."""
    job = context.job
    before = job.generation
    left = {rank: before.shares[rank] for rank in before.roster if rank not in ranks}
    for rank in set(ranks) - set(before.roster):
        job.workers[rank].from_iteration = first_iteration
    job.generation = Generation(number=before.number + 1, roster=ranks, first_iteration=first_iteration)
    job.recount()
    _resize(context, first_iteration)
    job.generation.shares = _even_split(job.batch, ranks) if ranks else {}
    context.emit(SetRoster, reason, generation=job.generation.number, first_iteration=first_iteration, ranks=ranks)
    if ranks and not sharing.begin_data(context, ranks):
        return
    sentence = _decide_first_shares(context, before, first_iteration) if ranks else reason
    granting.raise_watermarks(context)
    granting.begin_partial(context, left)
    granting.begin_asynchronous(context)
    if context.spec.reduces and context.mode.owns_loop:
        job.placement.renew()  # without servers it lists the members and their addresses
    # Placement before orders: orders name a placement version that the worker must have. Sequence numbers of the
    # servers' orders follow from the workers' ones, so the latter are made first.
    for worker in [job.workers[rank] for rank in ranks]:
        ordering.issue_placement(context, worker, reason)
    ordering.issue_all(context, sentence)
    for server in job.live_servers:
        ordering.issue_server_orders(context, server, reason)
    if ranks and not job.generation.is_short:
        granting.lift(context, "policy", sentence)
        granting.lift(context, "limits", sentence)


def _decide_first_shares(context: Context, before: Generation, first_iteration: int) -> str:
    """Shares for the new roster, with the reason; if limits allow none, or the policy fails, the job pauses."""
    request: ShareRequest = sharing.share_request(context, first_iteration)
    try:
        state, decision = context.chosen.batching.start(request, context.chosen.batching_state)
    except ImpossibleShares as error:
        return _keep_shares(context, before, "limits", str(error))
    except Exception as error:
        context.fault = error
        return _keep_shares(context, before, "policy", sharing.failure_sentence(context, error))
    context.chosen.batching_state = state
    decision = sharing.in_multiples(context, decision, request)
    sharing.record_decision(context, decision)
    sharing.take_shares(context, decision, first_iteration, announce=True)
    return decision.reason


def _keep_shares(context: Context, before: Generation, cause: granting.Cause, why: str) -> str:
    """Keep the earlier shares and pause the job; returns the reason."""
    job = context.job
    shares = {rank: before.shares.get(rank, 0) for rank in job.generation.roster}
    job.generation.shares, job.generation.share_from = shares, before.share_from
    job.generation.offsets = context.chosen.data.offsets(shares)
    job.generation.is_short = True
    job.samples.budget_width = 0
    reason = f"no shares for generation {job.generation.number}: {why}"
    granting.pause(context, cause, reason)
    return reason


def _resize(context: Context, first_iteration: int) -> None:
    """If the global batch depends on the number of workers: later iterations take their samples from here on."""
    job, spec = context.job, context.spec
    size = len(job.generation.roster) * spec.usual_share
    if spec.elastic.global_batch == "keep" or size in (0, job.batch):
        return
    if context.mode.has_global_batch:
        job.samples.origin_position += (first_iteration - job.samples.origin_iteration) * job.width
        job.samples.origin_iteration = first_iteration
    job.samples.global_batch = size


def depart(context: Context, gone: Mapping[int, str], why: str) -> None:
    """Counting workers are lost: the others, if any, continue without them in a new generation.

    ``gone``: what ended each, to complete a sentence that begins with its name; ``why``: the same for all of them.
    """
    job = context.job
    for rank, ended in gone.items():
        forget(context, job.workers[rank], ended)
    left = [rank for rank in job.generation.roster if rank not in gone]
    first = min((job.workers[rank].last_completed for rank in left), default=job.round.completed) + 1
    titles = named([job.workers[rank].title for rank in gone])
    begin_generation(context, left, first_iteration=first, reason=f"{titles} {why}")


def forget(context: Context, worker: Worker, why: str) -> None:
    """Expect nothing more from a worker that counted until now; a generation without it follows."""
    job = context.job
    context.close_flags(f"{worker.title} {why}", rank=worker.index)
    if worker.state is ProcessState.LOST:
        context.open_flag(worker.index, "lost", "lasting", f"{worker.title} {why}", {"iteration": worker.done})
    for observed in (*job.round.observed.values(), job.round.recent):
        observed.pop(worker.index, None)
    sharing.drop_leases_after(job, worker, worker.done)
    sharing.note_departure(context, worker)
    job.updates.passed.pop(worker.index, None)


def _even_split(total: int, ranks: list[int]) -> dict[int, int]:
    base, rest = divmod(total, len(ranks))
    return {rank: base + (position < rest) for position, rank in enumerate(ranks)}
