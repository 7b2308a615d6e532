"""The ranks of an attached job: processes that a launcher starts and ends, independently of Paceline.

**Arrival.** A rank exists from its hello on. Once all ranks of a world are connected they form a generation. A rank
that reconnects as another process, or another world size, begins the next generation. Reports of all ranks complete an
iteration. A rank never waits for the control plane.

**End.** A rank without heartbeats is only shown as unreachable: only its launcher can end it. The job ends with the
exit code of its launcher. Without that, it ends once every rank has reported that its loop ended, or when the job has
waited for ranks for as long as its spec allows. Where agents start the script (``scripts``), they report its exit code.
"""

from collections.abc import Mapping
from typing import Final

from controlplane.core import filling, granting, hangs, membership, ordering, scripts, sharing
from controlplane.core.choices import Finding
from controlplane.core.commands import IssueOrders, RejectMessage, RollBack
from controlplane.core.context import NAMED, Context, EventRefused, being, flag_key, named, number_of
from controlplane.core.events import LAUNCHER, LauncherEnded, WorkerMessageReceived
from controlplane.core.state import Job
from controlplane.core.states import (
    JOB_OVER,
    RANKS_AWAITED,
    UNREACHABLE,
    JobState,
    ProcessState,
    Rank,
    Worker,
    in_words,
)
from controlplane.protocol import RELEASE, understands
from controlplane.protocol.base import MAX_INT32
from controlplane.protocol.messages import RankHello, WorkerFinished
from controlplane.protocol.orders import Orders, Rejection

MOST_OPEN: Final = 1_000
"""The most incomplete rounds that are kept."""

DIFFER: Final = "ranks"
RELEASES: Final = "release"
"""Kinds of findings: ranks that differ, and a rank with another release of Paceline."""


def instance_of(context: Context, event: WorkerMessageReceived) -> Worker | None:
    """The rank's current instance; a first hello starts one. None if the message is rejected."""
    job, worker, message = context.job, context.job.workers.get(event.rank), event.message
    is_current = worker is not None and worker.instance == event.instance
    if is_current or (worker is not None and job.attachment.is_past(event.rank, event.instance)):
        return worker
    if job.state in JOB_OVER:
        _refuse(context, event, "stale", f"the job {in_words(job.state)}: it accepts no more messages")
        return None
    if not isinstance(message, RankHello):
        _refuse(context, event, "unexpected", "the first message of a rank is its hello")
        return None
    if message.rank != event.rank or message.rank >= message.world:
        found = f"it says hello as rank {message.rank} of a world of {message.world} on the socket of rank {event.rank}"
        _refuse(context, event, "unexpected", f"{found}: expected that rank, below the world's size")
        return None
    return _start_instance(context, event.instance, message)


def greet(context: Context, worker: Worker, hello: RankHello) -> bool:
    """A rank is connected for the first time or again; True if a generation has begun with it."""
    job = context.job
    assert worker.rank is not None
    worker.rank.samples, worker.rank.batch_size, worker.rank.multiple = _batches_of(hello)
    job.samples.count = max(job.samples.count, hello.sample_count)
    _compare_release(context, worker, hello.release)
    if worker.rank.counts:
        ordering.issue(context, worker, "hello")
        on_return(context, worker)
        return False
    _issue_first(context, worker)
    members = _complete_world(job, worker.rank.world)
    if members is None:
        _report_missing(context, worker.rank.world)
        return False
    if not _agree(context, members):
        return False
    _begin_generation(context, members)
    return True


def on_return(context: Context, worker: Worker) -> None:
    """A rank that was unreachable is connected again."""
    job = context.job
    context.has_new_deadline = True
    context.close_flag(worker.index, "lost", f"{worker.title} is connected again")
    if (
        DIFFER in job.pauses
        and job.generation.roster
        and all(job.workers[rank].state is not UNREACHABLE for rank in job.generation.roster)
    ):
        granting.go_on_with_ranks(context, f"{number_of(len(job.generation.roster), 'rank')} reconnected")


def forget_old(job: Job) -> None:
    """Drop the oldest rounds that stay open because a rank is unreachable, if there are too many."""
    for rounds in (job.round.observed, job.round.processed, job.round.transfers, job.attachment.ends):
        while len(rounds) > MOST_OPEN:
            del rounds[min(rounds)]


def _batches_of(hello: RankHello) -> tuple[int, int, int]:
    return hello.sample_count, hello.batch_size, hello.multiple


def _start_instance(context: Context, instance: str, hello: RankHello) -> Worker:
    job, before = context.job, context.job.workers.get(hello.rank)
    where = f" on {hello.host}" if hello.host else ""
    started = f", started by {hello.launcher}" if hello.launcher else ""
    reason = f"rank {hello.rank} of {hello.world} said hello{where}{started}"
    if before is not None:
        job.attachment.end_lost(before.index, before.instance)
        if not before.over:
            over = ProcessState.STOPPED if before.state is ProcessState.FINISHED else ProcessState.LOST
            context.move_process(before, over, f"another process has replaced its rank{where}")
    knows = hello.iteration is not None
    script = job.scripts.processes.get(hello.rank)
    job.workers[hello.rank] = worker = Worker(
        role="worker",
        index=hello.rank,
        instance=instance,
        agent=script.agent if script is not None else 0,
        slot=script.slot if script is not None else 0,
        emulate=None,
        state=ProcessState.READY,
        since_ms=context.now_ms,
        seen_ms=context.now_ms,
        ordered_ms=context.now_ms,
        environment=_environment_of(hello),
        rank=Rank(
            world=hello.world,
            batch_size=hello.batch_size,
            samples=hello.sample_count,
            multiple=hello.multiple,
            starts=hello.iteration if hello.iteration is not None else job.round.completed + 1,
            knows=knows,
            scales_lr=hello.scales_lr,
            position=hello.position if knows else None,
            host=hello.host,
        ),
    )
    job.starts.at_work += 1
    context.has_new_deadline = True
    context.report_process(worker, reason)
    return worker


def _issue_first(context: Context, worker: Worker) -> None:
    """Issue orders before a generation contains this instance: where it begins, with the earlier shares or even
    ones.
    """
    job, rank = context.job, worker.rank
    assert rank is not None
    known = [job.generation.shares[each] for each in job.generation.roster]
    total = rank.world * rank.batch_size
    shares = known if len(known) == rank.world and sum(known) == total else [rank.batch_size] * rank.world
    job.sequence += 1
    position = rank.position if rank.position is not None else _position(job, rank.starts)
    worker.orders = Orders(
        incarnation=job.incarnation,
        generation=job.generation.number,
        sequence=job.sequence,
        share=shares[worker.index],
        offset=sum(shares[: worker.index]),
        global_batch=total,
        origin_iteration=rank.starts,
        origin_position=position,
        share_from=rank.starts,
        share_until=MAX_INT32,
        watermark=MAX_INT32,
        placement_version=0,
        stop_at=job.end.stop_at,
        decision_timeout_s=0.0,
        hold=job.hold.sequence is not None,
        shares=shares,
        shares_version=job.attachment.version,
        begins=job.attachment.begins.get(rank.starts),
    )
    sharing.raise_watermark(worker, MAX_INT32)
    context.emit(IssueOrders, "hello", rank=worker.index, instance=worker.instance, orders=worker.orders)


def _position(job: Job, iteration: int) -> int:
    """Position of an iteration's first sample: as reported, or else by the job's own count."""
    if iteration in job.attachment.begins:
        return job.attachment.begins[iteration]
    return max(0, job.samples.origin_position + (iteration - job.samples.origin_iteration) * job.width)


def _complete_world(job: Job, world: int) -> list[Worker] | None:
    """The ranks of a world, once all are connected."""
    members = [job.workers.get(rank) for rank in range(world)]
    here = [each for each in members if each is not None and each.rank is not None]
    ready = [each for each in here if each.state is ProcessState.READY and each.rank and each.rank.world == world]
    if len(ready) < world:
        return None
    # A rank that restarts at an iteration that the others finished long ago restarts with all others: wait for theirs.
    moves_back = any(
        each.rank and each.rank.knows and not each.rank.counts and each.rank.starts <= job.round.completed
        for each in ready
    )
    return None if moves_back and any(each.rank and each.rank.counts for each in ready) else ready


def _report_missing(context: Context, world: int) -> None:
    job = context.job
    here = [
        each.title
        for each in job.live_workers
        if each.rank is not None and each.rank.world == world and each.state is ProcessState.READY
    ]
    sizes = sorted({each.rank.world for each in job.live_workers if each.rank and each.state is ProcessState.READY})
    if len(sizes) > 1:
        worlds_text = "; ".join(f"{named(_of_world(job, size))} of a world of {size}" for size in sizes)
        _differ(context, f"the ranks report different world sizes: {worlds_text}; start all with one world size")
    missing = [f"w{rank}" for rank in range(world) if f"w{rank}" not in here]
    awaited = f"{RANKS_AWAITED} {named(missing)}; {len(here)} of {world} are connected"
    granting.await_ranks(context, f"{len(here)} of {number_of(world, 'rank')} are connected", awaited)


def _of_world(job: Job, size: int) -> list[str]:
    return [each.title for each in job.live_workers if each.rank is not None and each.rank.world == size]


def _agree(context: Context, members: list[Worker]) -> bool:
    """Whether the ranks of a world have the same settings; if not, they are notified and continue with even shares."""
    facts = [(each.title, each.rank) for each in members if each.rank is not None]
    for name, values in (
        ("batch_size", {title: rank.batch_size for title, rank in facts}),
        ("sample_count", {title: rank.samples for title, rank in facts if rank.samples}),
    ):
        if len(set(values.values())) > 1:
            found = ", ".join(f"{title} {value}" for title, value in list(values.items())[:NAMED])
            sentence = f"the ranks differ in {name}: {found}; the shares stay equal until all have the same"
            _differ(context, sentence)
            granting.await_ranks(context, sentence, f"{RANKS_AWAITED} with one {name}")
            return False
    return True


def _differ(context: Context, sentence: str) -> None:
    """Notify the ranks and the operator."""
    if flag_key(DIFFER, "job", 0) in context.job.flags.open:
        return
    found = Finding(rank=0, kind=DIFFER, open=True, sentence=sentence, subject="job")
    context.record_findings([found])
    for worker in context.job.live_workers:
        if worker.state is ProcessState.READY:
            send_notice(context, worker, sentence)


def send_notice(context: Context, worker: Worker, sentence: str) -> None:
    """Send a sentence for the rank's log; it changes nothing."""
    rejection = Rejection(code="unexpected", detail=sentence)
    context.emit(
        RejectMessage, sentence, role="worker", index=worker.index, instance=worker.instance, rejection=rejection
    )


def _begin_generation(context: Context, members: list[Worker]) -> None:
    """Begin a generation of these ranks with their first iteration."""
    job, world = context.job, len(members)
    facts = [each.rank for each in members if each.rank is not None]
    first = _first_iteration(context, members)
    for worker in [each for each in job.live_workers if each.index >= world]:
        context.move_process(worker, ProcessState.STOPPED, f"the ranks are {world} now")
    context.close_flag(0, DIFFER, "the ranks agree", subject="job")
    position = next((rank.position for rank in facts if not rank.counts and rank.position is not None), None)
    if position is not None or job.batch != world * facts[0].batch_size:
        position = _position(job, first) if position is None else position
        job.samples.origin_iteration, job.samples.origin_position = first, position
    job.samples.global_batch = world * facts[0].batch_size
    for worker in members:
        assert worker.rank is not None
        if not worker.rank.counts:
            worker.done, worker.from_iteration = first - 1, first
            worker.rank.counts = True
        context.close_flag(worker.index, "lost", f"{worker.title} is connected again")
    hangs.close(context, "the ranks restarted")
    filling.begin(context, members)
    here = f"{number_of(world, 'rank')} {being(world)} connected"
    if job.state is JobState.STARTING:
        _start_running(context, here)
    reason = f"{here}, from iteration {first} on"
    membership.begin_generation(context, list(range(world)), first_iteration=first, reason=reason)
    granting.go_on_with_ranks(context, here)


def _first_iteration(context: Context, members: list[Worker]) -> int:
    """The iteration that these ranks begin with; iterations may be repeated or skipped if none was connected."""
    job = context.job
    first = max(each.rank.starts for each in members if each.rank is not None and not each.rank.counts)
    completed = [each.last_completed for each in members if each.rank is not None and each.rank.counts]
    if completed:
        return max(first, job.round.completed + 1, min(completed) + 1)
    if first <= job.round.completed:
        sentence = f"the ranks begin with iteration {first}: iterations {first} to {job.round.completed} are repeated"
        context.emit(RollBack, sentence, to_iteration=first, completed=job.round.completed)
    job.round.completed, job.round.observed, job.round.processed, job.round.transfers = first - 1, {}, {}, {}
    job.attachment.ends = {}
    return first


def _start_running(context: Context, reason: str) -> None:
    job, limit = context.job, context.spec.stop.iterations
    context.move_job(JobState.RUNNING, reason)
    job.running_ms = context.now_ms
    if limit is not None:
        job.end.stop_at, job.end.reason = limit, f"{limit} iterations were requested"


def _compare_release(context: Context, worker: Worker, release: str) -> None:
    """Log that a rank has another release; it works, since unknown fields are ignored."""
    if understands(release):
        context.close_flag(worker.index, RELEASES, f"{worker.title} is of release {release or RELEASE}")
        return
    found = (
        f"{worker.title} has Paceline {release}, the control plane {RELEASE}: install the same one beside the script"
    )
    context.open_flag(worker.index, RELEASES, "lasting", found, {"release": release})


def _refuse(context: Context, event: WorkerMessageReceived, code: str, detail: str) -> None:
    rejection = Rejection(code="stale" if code == "stale" else "unexpected", detail=detail, number=event.message.number)
    context.emit(RejectMessage, detail, role="worker", index=event.rank, instance=event.instance, rejection=rejection)


def _environment_of(hello: RankHello) -> dict[str, str]:
    """A hello's description of its process, by name, for display."""
    found = {
        **hello.environment,
        "machine": hello.host,
        "device": hello.device,
        "launcher": hello.launcher,
        "pid": str(hello.pid) if hello.pid else "",
        "paceline": hello.release,
        "micro-batch": str(hello.micro_batch) if hello.micro_batch else "",
    }
    return {name: value for name, value in found.items() if value}


SILENCE_MS: Final = 10_000
"""A rank without a heartbeat for this long is unreachable."""

GRACE_MS: Final = 10_000
"""How long after an outage of the control plane no rank counts as unreachable: ranks reconnect one by one."""

GONE_MS: Final = 15_000
"""If all ranks are unreachable for this long, the job waits for ranks; if one is, the operator is warned."""

END_MS: Final = 30_000
"""How long ranks may take to stop."""

RETURN: Final = (
    RANKS_AWAITED + ", none of which is connected: it continues when they return, and fails after {:g} s without them"
)
NO_LEASE: Final = (
    ". If their launcher was killed, no exit code is reported: start the script again with"
    " this job's token, or stop the job"
)
LEASE: Final = ", or after {:g} s without a renewal by their launcher"
"""A killed launcher cannot report its end."""

LAUNCHER_MS: Final = 60_000
"""How long to wait for the launcher's exit code after every rank has ended its loop."""


def deadlines_ms(job: Job) -> list[int]:
    """The next deadline."""
    assert job.spec is not None
    members = [job.workers[rank] for rank in job.generation.roster]
    times = [_silent_at(job, each) for each in job.live_workers if each.state is ProcessState.READY]
    if job.state is JobState.RUNNING:
        times += [each.since_ms + GONE_MS for each in members if _is_unreported(job, each)]
    limits = (_gone_at(job), _gives_up_at(job), _lease_ends_at(job), _ends_by(job), job.scripts.due_ms)
    return times + [limit for limit in limits if limit is not None]


def check_ranks(context: Context) -> None:
    """Time has passed: mark unreachable ranks, and end waits that have timed out."""
    job, now_ms = context.job, context.now_ms
    for worker in job.live_workers:
        if worker.state is ProcessState.READY and now_ms >= _silent_at(job, worker):
            silent_s = (now_ms - worker.seen_ms) / 1000
            context.move_process(worker, ProcessState.UNREACHABLE, f"sent no heartbeat for {silent_s:.1f} s")
    gone_at = _gone_at(job)
    if gone_at is not None and now_ms >= gone_at:
        _await_ranks(context)
    elif job.state is JobState.RUNNING:
        _flag_lost_ranks(context)
    gives_up_at, lease_ends_at = _gives_up_at(job), _lease_ends_at(job)
    if gives_up_at is not None and now_ms >= gives_up_at:
        _end_wait(context)
    elif lease_ends_at is not None and now_ms >= lease_ends_at:
        _end_with_launcher(context)
    elif job.state is JobState.FINISHING and (_has_ended(job) or _is_late(job, now_ms)):
        _end_attached(context)


def note_lease(job: Job, seen: Mapping[str, int]) -> None:
    """Record when the launcher last renewed the job's lease."""
    job.attachment.launcher_seen_ms = max(job.attachment.launcher_seen_ms, seen.get(LAUNCHER, 0))


def on_loop_ended(context: Context, worker: Worker, message: WorkerFinished) -> None:
    """A rank's loop has ended by itself, or at the requested boundary."""
    job = context.job
    if worker.state is not ProcessState.READY:
        return
    context.move_process(worker, ProcessState.FINISHED, f"its loop ended before iteration {message.iteration}")
    if job.end.stop_at is not None and message.iteration >= job.end.stop_at:
        _begin_finishing(context, job.end.reason, "every rank's end", END_MS)
    elif all(each.state is ProcessState.FINISHED for each in _members(job)) and _members(job):
        owner = "its launcher" if context.spec.command is None else "its script"
        _begin_finishing(context, "every rank has ended its loop", f"{owner}'s exit code", LAUNCHER_MS)
    if job.state is JobState.FINISHING and _has_ended(job) and job.end.stop_at is not None:
        _end_attached(context)


def on_launcher_ended(context: Context, event: LauncherEnded) -> None:
    """The launcher's exit code ends the job."""
    job, status = context.job, event.exit_code
    if context.mode.owns_processes:
        raise EventRefused(f"job {job.number}: finish by {event.actor}, but Paceline's agents start its processes")
    if context.spec.command is not None:
        raise EventRefused(f"job {job.number}: finish by {event.actor}, but Paceline's agents start its script")
    if job.state in JOB_OVER:
        raise EventRefused(f"job {job.number}: finish by {event.actor}, but it is {job.state}")
    cause = f": {event.reason}" if event.reason else ""
    how = f"with status {status}" if status >= 0 else f"by signal {-status}"
    _end_with_status(context, status, f"its launcher ended {how}{cause}")


def on_script_ended(context: Context, outcome: scripts.Outcome | None) -> None:
    """All processes of the script that agents started have ended, if there is an outcome."""
    if outcome is None:
        return
    if outcome.again_s is not None:
        awaited = f"{RANKS_AWAITED}, which start again in {outcome.again_s:g} s"
        granting.await_ranks(context, outcome.sentence, awaited)
    elif scripts.was_requested_to_end(context.job):
        _end_as_requested(context, outcome.failure)
    else:
        _end_with_status(context, outcome.status, outcome.sentence)


def _end_with_status(context: Context, status: int, sentence: str) -> None:
    """The exit status of the script ends the job; ``sentence`` says how it ended."""
    job = context.job
    if job.attachment.ends_as == JobState.CANCELLED:
        context.end_job(JobState.CANCELLED, f"{job.end.reason}; {sentence}")
    elif status:
        context.end_job(JobState.FAILED, sentence)
    elif not _members(job):
        cure = (
            "call paceline.attach() in the script, take batches from pacer.loader(), and let its ranks reach"
            " PACELINE_URL; its log says what is missing"
        )
        context.end_job(JobState.FAILED, f"{sentence}, but {_who_came(job)}: {cure}")
    else:
        _begin_finishing(context, sentence, "", 0)
        job.attachment.ends_as, job.end.reason = JobState.SUCCEEDED, sentence
        _end_attached(context)


def _end_as_requested(context: Context, failure: str) -> None:
    """The script's processes have ended after their ranks were ordered to stop. ``failure``: how one failed, or ""."""
    job = context.job
    if failure:
        job.end.reason = f"{job.end.reason}; {failure}"
    came_so_far = all(worker.state is ProcessState.FINISHED for worker in _members(job))
    if failure and not came_so_far and job.attachment.ends_as != JobState.CANCELLED:
        job.attachment.ends_as = JobState.FAILED
    _end_attached(context)


def _members(job: Job) -> list[Worker]:
    """The ranks of the generation. If ranks differ there is none, and they continue to train: then all ranks, if all
    came.
    """
    if job.generation.number:
        return [job.workers[rank] for rank in job.generation.roster]
    here = [worker for worker in job.workers.values() if worker.rank is not None and worker.early]
    worlds = {worker.rank.world for worker in here if worker.rank is not None}
    return here if worlds == {len(here)} else []


def stop_ranks(context: Context, reason: str) -> None:
    """A user ends the job: its ranks stop at one boundary, within a time limit. A second request ends it at once."""
    job = context.job
    here = any(worker.state is ProcessState.READY for worker in job.live_workers)
    if not here or not job.generation.roster or job.attachment.ends_as:
        context.end_job(JobState.CANCELLED, reason)
        return
    granting.stop_at(context, job.round.completed + 1, reason)
    job.end.reason = reason
    _begin_finishing(context, reason, "every rank's end", END_MS)
    job.attachment.ends_as = JobState.CANCELLED


def _begin_finishing(context: Context, reason: str, awaited: str, wait_ms: int) -> None:
    job = context.job
    if job.state is JobState.FINISHING:
        return
    job.pauses.clear()
    job.attachment.waits_since_ms = None
    job.attachment.ends_as = job.attachment.ends_as or JobState.SUCCEEDED
    job.end.reason, job.end.by_ms = reason, context.now_ms + wait_ms
    context.has_new_deadline = True
    context.move_job(JobState.FINISHING, reason, awaited=awaited)


def _end_attached(context: Context) -> None:
    job = context.job
    done = f"{number_of(job.round.completed + 1, 'iteration')} {'was' if job.round.completed == 0 else 'were'} done"
    if not job.generation.number:
        done = "its ranks differed, so shares stayed equal and no iteration was counted"
    context.end_job(JobState(job.attachment.ends_as), f"{job.end.reason}; {done}")


def _gives_up_at(job: Job) -> int | None:
    """When the wait for ranks times out; None while a rank is connected or the job does not wait."""
    since_ms = job.attachment.waits_since_ms
    if since_ms is None or job.spec is None or not _all_stopped(job):
        return None
    return max([since_ms, *(each.since_ms for each in job.workers.values())]) + int(job.spec.wait_s * 1000)


def _lease_ends_at(job: Job) -> int | None:
    """When the launcher's lease of a job without ranks ends; None if there is no such deadline."""
    since_ms, spec = job.attachment.waits_since_ms, job.spec
    if since_ms is None or spec is None or spec.lease_s is None or not _all_stopped(job):
        return None
    return max(since_ms, job.attachment.launcher_seen_ms, job.resumed_ms) + int(spec.lease_s * 1000)


def _end_with_launcher(context: Context) -> None:
    job = context.job
    silent_s = (context.now_ms - (job.attachment.launcher_seen_ms or job.since_ms)) / 1000
    who = "its ranks are gone" if job.generation.number else _who_came(job)
    context.end_job(
        JobState.FAILED,
        f"its launcher has not renewed its lease for {silent_s:.0f} s (lease_s is {context.spec.lease_s:g}), and {who}:"
        " it was killed, or cannot reach the control plane; start the script again",
    )


def _end_wait(context: Context) -> None:
    job, waited = context.job, f"{context.spec.wait_s:g} s"
    if job.generation.number:
        context.end_job(JobState.FAILED, f"its ranks were disconnected for {waited}, the limit set by wait_s")
        return
    cure = "start the script with paceline run, or give its ranks PACELINE_URL, PACELINE_JOB and PACELINE_TOKEN"
    if context.spec.command is not None:
        cure = "call paceline.attach() in the script, and take batches from pacer.loader(); its log says what it does"
    context.end_job(JobState.FAILED, f"{_who_came(job)} within {waited}: {cure}")


def _who_came(job: Job) -> str:
    worlds = [each.rank.world for each in job.workers.values() if each.rank is not None]
    return f"only {number_of(len(worlds), 'rank')} of {max(worlds)} said hello" if worlds else "no rank said hello"


def _gone_at(job: Job) -> int | None:
    """When the job will begin to wait for ranks because all are unreachable; None if some are connected."""
    members = [job.workers[rank] for rank in job.generation.roster]
    is_open = job.state in (JobState.RUNNING, JobState.PAUSED) and job.attachment.waits_since_ms is None
    if not (is_open and members and all(_is_disconnected(each) for each in members)):
        return None
    return max(each.since_ms for each in members) + GONE_MS


def _await_ranks(context: Context) -> None:
    number, spec = len(context.job.generation.roster), context.spec
    gone = f"all {number_of(number, 'rank')} are gone" if number > 1 else "its rank is gone"
    until = NO_LEASE if spec.lease_s is None else LEASE.format(spec.lease_s)
    if spec.command is not None:
        until = ""
    granting.await_ranks(context, gone, RETURN.format(spec.wait_s) + until)


def _flag_lost_ranks(context: Context) -> None:
    """Flag ranks that have been unreachable for too long."""
    job, now_ms = context.job, context.now_ms
    members = [job.workers[rank] for rank in job.generation.roster]
    for worker in members:
        if _is_unreported(job, worker) and now_ms >= worker.since_ms + GONE_MS:
            away_s = (now_ms - worker.since_ms) / 1000
            sentence = (
                f"{worker.title} has been unreachable for {away_s:.0f} s: its launcher owns it, the others continue"
            )
            context.open_flag(worker.index, "lost", "lasting", sentence, {"iteration": worker.done})


def _is_disconnected(worker: Worker) -> bool:
    return worker.state is not ProcessState.READY


def _is_unreported(job: Job, worker: Worker) -> bool:
    away = worker.state is ProcessState.UNREACHABLE
    return away and flag_key("lost", "worker", worker.index) not in job.flags.open


def _all_stopped(job: Job) -> bool:
    return not any(worker.state is ProcessState.READY for worker in job.live_workers)


def _has_ended(job: Job) -> bool:
    """Whether neither a rank is connected, nor a process of a script runs that agents started."""
    return _all_stopped(job) and not job.scripts.running


def _ends_by(job: Job) -> int | None:
    """When a finishing job ends although something of it still runs; None: never. A script that agents started may
    take any time after its loops, unless a user has cancelled the job.
    """
    is_waited_for = bool(job.scripts.running) and _all_stopped(job) and job.attachment.ends_as != JobState.CANCELLED
    return None if is_waited_for else job.end.by_ms


def _is_late(job: Job, now_ms: int) -> bool:
    by_ms = _ends_by(job)
    return by_ms is not None and by_ms <= now_ms


def _silent_at(job: Job, worker: Worker) -> int:
    return max(worker.seen_ms + SILENCE_MS, job.resumed_ms + GRACE_MS)
