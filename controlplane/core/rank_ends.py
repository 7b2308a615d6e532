"""How an attached job ends, and what happens when its ranks are silent, lost or done: their launcher owns them.

It ends with the exit code of its launcher. Without that, it ends once every rank has said that its loop
ended, or when it has waited for ranks for as long as its spec allows.
"""

from collections.abc import Mapping
from typing import Final

from controlplane.core import granting
from controlplane.core.context import Context, EventRefused, flag_key, number_of
from controlplane.core.events import LAUNCHER, LauncherEnded
from controlplane.core.processes import ProcessState, Worker
from controlplane.core.state import Job
from controlplane.core.states import JOB_OVER, JobState
from controlplane.protocol.messages import WorkerFinished

SILENCE_MS: Final = 10_000
"""A rank without a heartbeat for so long is out of reach."""

GRACE_MS: Final = 10_000
"""How long no rank is, after an outage of the control plane: ranks reconnect one by one."""

GONE_MS: Final = 15_000
"""After this long with all out of reach, the job waits for ranks; with one, the operator is warned."""

END_MS: Final = 30_000
"""How long ranks have to stop when ordered to."""

RETURN: Final = (
    granting.RANKS_AWAITED
    + ", none of which is connected: it continues when they return, and fails after {:g} s without them"
)
NO_LEASE: Final = (
    ". If their launcher was killed, no exit code is reported: start the script again with"
    " this job's token, or stop the job"
)
LEASE: Final = ", or after {:g} s without a renewal by their launcher"
"""A killed launcher cannot report its end."""

LAUNCHER_MS: Final = 60_000
"""How long to wait for the launcher's exit code after every rank has ended its loop."""


def next_ms(job: Job) -> list[int]:
    """The next deadline."""
    assert job.spec is not None
    members = [job.workers[rank] for rank in job.generation.roster]
    times = [_silent_at(job, each) for each in job.live_workers if each.state is ProcessState.READY]
    if job.state is JobState.RUNNING:
        times += [each.since_ms + GONE_MS for each in members if _is_unreported(job, each)]
    limits = (_gone_at(job), _gives_up_at(job), _lease_ends_at(job), job.end.by_ms)
    return times + [limit for limit in limits if limit is not None]


def look(context: Context) -> None:
    """Time has passed: mark ranks that are out of reach, and end waits that have timed out."""
    job, now_ms = context.job, context.now_ms
    for worker in job.live_workers:
        if worker.state is ProcessState.READY and now_ms >= _silent_at(job, worker):
            silent_s = (now_ms - worker.seen_ms) / 1000
            context.move_process(worker, ProcessState.UNREACHABLE, f"sent no heartbeat for {silent_s:.1f} s")
    gone_at = _gone_at(job)
    if gone_at is not None and now_ms >= gone_at:
        _await_return(context)
    elif job.state is JobState.RUNNING:
        _look_at_members(context)
    gives_up_at, lease_ends_at = _gives_up_at(job), _lease_ends_at(job)
    if gives_up_at is not None and now_ms >= gives_up_at:
        _give_up(context)
    elif lease_ends_at is not None and now_ms >= lease_ends_at:
        _end_with_launcher(context)
    elif job.state is JobState.FINISHING and (_all_stopped(job) or (job.end.by_ms or 0) <= now_ms):
        _end(context)


def note_lease(job: Job, seen: Mapping[str, int]) -> None:
    """When the launcher renewed the job's lease, by what is known of heartbeats."""
    job.attachment.launcher_seen_ms = max(job.attachment.launcher_seen_ms, seen.get(LAUNCHER, 0))


def on_finished(context: Context, worker: Worker, message: WorkerFinished) -> None:
    """A rank's loop has ended by itself, or at the boundary that it was asked to stop at."""
    job = context.job
    if worker.state is not ProcessState.READY:
        return
    context.move_process(worker, ProcessState.FINISHED, f"its loop ended before iteration {message.iteration}")
    if job.end.stop_at is not None and message.iteration >= job.end.stop_at:
        _finish(context, job.end.reason, "every rank's end", END_MS)
    elif all(each.state is ProcessState.FINISHED for each in _members(job)) and _members(job):
        _finish(context, "every rank has ended its loop", "its launcher's exit code", LAUNCHER_MS)
    if job.state is JobState.FINISHING and _all_stopped(job) and job.end.stop_at is not None:
        _end(context)


def on_launcher_ended(context: Context, event: LauncherEnded) -> None:
    """The launcher's exit code is the job's end."""
    job, status = context.job, event.exit_code
    if context.mode.owns_processes:
        raise EventRefused(f"job {job.number}: finish by {event.actor}, but Paceline's agents start its processes")
    if job.state in JOB_OVER:
        raise EventRefused(f"job {job.number}: finish by {event.actor}, but it is {job.state}")
    cause = f": {event.reason}" if event.reason else ""
    how = f"with status {status}" if status >= 0 else f"by signal {-status}"
    sentence = f"its launcher ended {how}{cause}"
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
        _finish(context, sentence, "", 0)
        job.attachment.ends_as, job.end.reason = JobState.SUCCEEDED, sentence
        _end(context)


def _members(job: Job) -> list[Worker]:
    """The ranks of the generation. Where ranks differ there is none, and they train on: then all, if all came."""
    if job.generation.number:
        return [job.workers[rank] for rank in job.generation.roster]
    here = [worker for worker in job.workers.values() if worker.rank is not None and worker.early]
    worlds = {worker.rank.world for worker in here if worker.rank is not None}
    return here if worlds == {len(here)} else []


def stop(context: Context, reason: str) -> None:
    """A user ends the job: its ranks stop at one boundary, within a time limit. A second request ends it at once."""
    job = context.job
    here = any(worker.state is ProcessState.READY for worker in job.live_workers)
    if not here or not job.generation.roster or job.attachment.ends_as:
        context.end_job(JobState.CANCELLED, reason)
        return
    granting.stop_at(context, job.round.completed + 1, reason)
    job.end.reason = reason
    _finish(context, reason, "every rank's end", END_MS)
    job.attachment.ends_as = JobState.CANCELLED


def _finish(context: Context, reason: str, awaited: str, wait_ms: int) -> None:
    job = context.job
    if job.state is JobState.FINISHING:
        return
    job.pauses.clear()
    job.attachment.waits_since_ms = None
    job.attachment.ends_as = job.attachment.ends_as or JobState.SUCCEEDED
    job.end.reason, job.end.by_ms = reason, context.now_ms + wait_ms
    context.has_new_deadline = True
    context.move_job(JobState.FINISHING, reason, awaited=awaited)


def _end(context: Context) -> None:
    job = context.job
    done = f"{number_of(job.round.completed + 1, 'iteration')} {'was' if job.round.completed == 0 else 'were'} done"
    if not job.generation.number:
        done = "its ranks differed, so shares stayed equal and no iteration was counted"
    context.end_job(JobState(job.attachment.ends_as), f"{job.end.reason}; {done}")


def _gives_up_at(job: Job) -> int | None:
    """When the wait for ranks times out; None while one is connected, or the job does not wait."""
    since_ms = job.attachment.waits_since_ms
    if since_ms is None or job.spec is None or not _all_stopped(job):
        return None
    return max([since_ms, *(each.since_ms for each in job.workers.values())]) + int(job.spec.wait_s * 1000)


def _lease_ends_at(job: Job) -> int | None:
    """When a job without ranks has been without a sign of its launcher for too long; None: it has no such deadline."""
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


def _give_up(context: Context) -> None:
    job, waited = context.job, f"{context.spec.wait_s:g} s"
    if job.generation.number:
        context.end_job(JobState.FAILED, f"its ranks were disconnected for {waited}, the limit set by wait_s")
        return
    cure = "start the script with paceline run, or give its ranks PACELINE_URL, PACELINE_JOB and PACELINE_TOKEN"
    context.end_job(JobState.FAILED, f"{_who_came(job)} within {waited}: {cure}")


def _who_came(job: Job) -> str:
    worlds = [each.rank.world for each in job.workers.values() if each.rank is not None]
    return f"only {number_of(len(worlds), 'rank')} of {max(worlds)} said hello" if worlds else "no rank said hello"


def _gone_at(job: Job) -> int | None:
    """When all ranks have been out of reach for so long that the job waits for them; None: they are not all."""
    members = [job.workers[rank] for rank in job.generation.roster]
    is_open = job.state in (JobState.RUNNING, JobState.PAUSED) and job.attachment.waits_since_ms is None
    if not (is_open and members and all(_is_away(each) for each in members)):
        return None
    return max(each.since_ms for each in members) + GONE_MS


def _await_return(context: Context) -> None:
    number, spec = len(context.job.generation.roster), context.spec
    gone = f"all {number_of(number, 'rank')} are gone" if number > 1 else "its rank is gone"
    until = NO_LEASE if spec.lease_s is None else LEASE.format(spec.lease_s)
    granting.await_ranks(context, gone, RETURN.format(spec.wait_s) + until)


def _look_at_members(context: Context) -> None:
    """Whether the operator should be warned of a lost rank."""
    job, now_ms = context.job, context.now_ms
    members = [job.workers[rank] for rank in job.generation.roster]
    for worker in members:
        if _is_unreported(job, worker) and now_ms >= worker.since_ms + GONE_MS:
            away_s = (now_ms - worker.since_ms) / 1000
            sentence = (
                f"{worker.title} has been out of reach for {away_s:.0f} s: its launcher owns it, the others continue"
            )
            context.open_flag(worker.index, "lost", "lasting", sentence, {"iteration": worker.done})


def _is_away(worker: Worker) -> bool:
    return worker.state is not ProcessState.READY


def _is_unreported(job: Job, worker: Worker) -> bool:
    away = worker.state is ProcessState.UNREACHABLE
    return away and flag_key("lost", "worker", worker.index) not in job.flags.open


def _all_stopped(job: Job) -> bool:
    return not any(worker.state is ProcessState.READY for worker in job.live_workers)


def _silent_at(job: Job, worker: Worker) -> int:
    return max(worker.seen_ms + SILENCE_MS, job.resumed_ms + GRACE_MS)
