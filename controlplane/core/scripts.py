"""The script of an attached job that agents start: one process per rank, on a slot each.

Agents take the place of a launcher. So these processes are not the ranks: a rank exists once its hello has arrived,
with any launcher (``attached``). The script's end is that of all its processes. If one fails, or its machine is lost,
the others wait for it in their all-reduce: they are ended, and all start again, as often as the spec allows. Each start
is an *attempt*; it asks for the slots again, since machines may have left.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from controlplane.core.commands import MoveJob, RequestSlot, StartProcess
from controlplane.core.context import Context, EventRefused, named, number_of
from controlplane.core.events import Assignment, ProcessDied, SlotRefused
from controlplane.core.records import ScriptProcess
from controlplane.core.restarts import PROVEN_MS, SETTLED_MS, pause_ms
from controlplane.core.state import Job
from controlplane.core.states import JOB_OVER, RANKS_AWAITED, JobState
from controlplane.protocol.orders import Script

ENDS_MS: Final = 20_000
"""How long the ends of processes that were requested to end are awaited; agents kill them after 10 s."""

SAVES_MS: Final = 30_000
"""How long the others continue if one process fails after the job's end was requested: they may be saving."""

ASK_AGAIN_MS: Final = 10_000
"""How long an unanswered or refused request for slots is not repeated."""


class Outcome(NamedTuple):
    """What follows from the end of all processes of an attempt."""

    status: int
    sentence: str
    failure: str
    """How the first process failed; empty: none did."""
    again_s: float | None = None
    """The script starts again after this time; None: the job ends."""


def take_slots(context: Context, assignments: Sequence[Assignment]) -> None:
    """Start the script on its first slots, or once each rank has one again."""
    job, processes = context.job, context.job.scripts.processes
    if job.state is JobState.SUBMITTED:
        _begin(context, assignments)
        return
    taken = [each for each in assignments if (known := processes.get(each.index)) and known.wants_slot]
    if not taken:
        raise EventRefused(f"job {job.number}: slots were assigned, but no process of its script waits for one")
    for each in taken:
        processes[each.index] = _process_on(each)
    if not any(process.wants_slot for process in processes.values()):
        _start(context, f"attempt {job.scripts.attempt + 1}")


def on_slot_refused(context: Context, event: SlotRefused) -> None:
    """No slot is free for a rank; the request is repeated."""
    job = context.job
    process = job.scripts.processes.get(event.index)
    if job.state in JOB_OVER or process is None or not process.wants_slot:
        raise EventRefused(f"job {job.number}: a slot for rank {event.index} is refused: no request waits for it")
    awaited = f"{RANKS_AWAITED}, which start when a worker slot for w{event.index} is free: {event.reason}"
    if awaited != job.awaited:
        context.emit(MoveJob, f"no slot for w{event.index}", state=job.state, awaited=awaited)


def on_process_died(context: Context, event: ProcessDied) -> Outcome | None:
    """A process has ended: the last one ends the script, and a failed one ends the others."""
    job, scripts = context.job, context.job.scripts
    process = scripts.processes.get(event.index)
    if process is None or process.instance != event.instance or not process.runs:
        raise EventRefused(f"job {job.number}: the end of {event.instance} is reported, but it is not a live process")
    process.runs = False
    if job.state in JOB_OVER:
        context.return_slots()
        return None
    if event.status and not scripts.failure:
        scripts.status, scripts.failure = event.status, f"w{event.index} {event.ended}"
        if was_requested_to_end(job):
            _await_until(context, SAVES_MS)
        else:
            _stop(context)
    return None if scripts.running else _outcome(context)


def check(context: Context) -> Outcome | None:
    """Time has passed: end what should have ended, or ask for slots."""
    scripts = context.job.scripts
    if scripts.due_ms is None or context.now_ms < scripts.due_ms:
        return None
    if not scripts.running:
        _ask_for_slots(context)
        return None
    if not scripts.is_stopping:
        _stop(context)
        return None
    silent = [f"w{rank}" for rank in scripts.running]
    for process in scripts.running.values():
        process.runs = False
    scripts.failure += f"; no end of {named(silent)} was reported"
    return _outcome(context)


def report(context: Context, reason: str) -> None:
    """Repeat what agents should run, for a new incarnation of the log."""
    job = context.job
    for rank, process in sorted(job.scripts.processes.items()):
        if process.runs and job.state not in JOB_OVER and not job.scripts.is_stopping:
            _order(context, rank, reason)
        elif process.instance:
            context.stop_script(rank, reason)


def _begin(context: Context, assignments: Sequence[Assignment]) -> None:
    job, spec = context.job, context.spec
    if sorted((each.role, each.index) for each in assignments) != [("worker", rank) for rank in range(spec.workers)]:
        found = f"slots for {len(assignments)} processes, expected one for each of {number_of(spec.workers, 'rank')}"
        raise EventRefused(f"job {job.number}: {found}")
    job.holds_slots = True
    job.attachment.waits_since_ms = context.now_ms
    machines = len({each.agent for each in assignments})
    where = "one machine" if machines == 1 else f"{machines} machines"
    context.move_job(JobState.SCHEDULED, f"{number_of(len(assignments), 'slot')} on {where} are reserved")
    job.scripts.processes = {each.index: _process_on(each) for each in assignments}
    _start(context, "its slots are reserved")
    awaited = f"{RANKS_AWAITED}, none of which is connected: its script is starting"
    context.move_job(JobState.STARTING, "its script was ordered", awaited=awaited)


def _process_on(assignment: Assignment) -> ScriptProcess:
    return ScriptProcess(agent=assignment.agent, slot=assignment.slot, host=assignment.host)


def _start(context: Context, reason: str) -> None:
    job, scripts = context.job, context.job.scripts
    scripts.attempt += 1
    scripts.started_ms, scripts.due_ms = context.now_ms, None
    scripts.status, scripts.failure, scripts.is_stopping = 0, "", False
    for rank, process in sorted(scripts.processes.items()):
        process.instance, process.runs = job.instance_name(f"w{rank}", scripts.attempt), True
        _order(context, rank, f"w{rank} of its script starts on slot {process.slot} of agent {process.agent}: {reason}")


def _order(context: Context, rank: int, reason: str) -> None:
    scripts = context.job.scripts
    process = scripts.processes[rank]
    context.emit(
        StartProcess,
        reason,
        role="worker",
        index=rank,
        instance=process.instance,
        agent=process.agent,
        slot=process.slot,
        script=Script(
            world=len(scripts.processes),
            slots=[each.slot for _, each in sorted(scripts.processes.items()) if each.agent == process.agent],
            address=scripts.processes[0].host,
            attempt=scripts.attempt,
        ),
    )


def _stop(context: Context) -> None:
    """End the other processes of a script that has failed."""
    scripts = context.job.scripts
    scripts.is_stopping = True
    _await_until(context, ENDS_MS)
    for rank in scripts.running:
        context.stop_script(rank, f"{scripts.failure}: the others of its script end as well")


def _await_until(context: Context, wait_ms: int) -> None:
    context.job.scripts.due_ms = context.now_ms + wait_ms
    context.has_new_deadline = True


def was_requested_to_end(job: Job) -> bool:
    """Whether ranks were ordered to stop, by a user or at an iteration: what a process ends with does not matter."""
    return job.state is JobState.FINISHING and job.end.stop_at is not None


def _outcome(context: Context) -> Outcome:
    """All processes have ended: the script has ended, or starts again."""
    scripts = context.job.scripts
    status, failure, scripts.due_ms = scripts.status, scripts.failure, None
    if not status:
        return Outcome(0, "its script ended with status 0", failure)
    sentence = f"its script failed: {failure}"
    number = _next_restart(context)
    if number is None:
        return Outcome(status, f"{sentence}{_restarted(scripts.restarts)}", failure)
    scripts.short = scripts.short + 1 if context.now_ms - scripts.started_ms < SETTLED_MS else 1
    scripts.restarts = number
    wait_ms = pause_ms(scripts.short)
    _await_until(context, wait_ms)
    again = f"{sentence}; restart {number} of {context.spec.elastic.restarts}"
    return Outcome(status, again, failure, wait_ms / 1000)


def _next_restart(context: Context) -> int | None:
    """The number of the next restart; None if there is none. A script that failed by itself before the job had begun
    would only fail again.
    """
    job, scripts, allowed = context.job, context.job.scripts, context.spec.elastic.restarts
    used = 0 if context.now_ms - scripts.started_ms > PROVEN_MS else scripts.restarts
    fails_again = scripts.status > 0 and not job.generation.number
    return None if used >= allowed or fails_again or job.state is JobState.FINISHING else used + 1


def _restarted(times: int) -> str:
    return f"; it was started again {'once' if times == 1 else f'{times} times'}, the maximum" if times else ""


def _ask_for_slots(context: Context) -> None:
    """Each rank returns to its slot, or to another one if its machine is away or being drained."""
    processes = context.job.scripts.processes
    is_first = not any(process.wants_slot for process in processes.values())
    _await_until(context, ASK_AGAIN_MS)
    for rank, process in sorted(processes.items()):
        process.wants_slot |= is_first
        if process.wants_slot:
            context.emit(RequestSlot, f"w{rank} of its script starts again", role="worker", index=rank)
