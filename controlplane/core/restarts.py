"""Restarts of processes that ended.

Processes that ended are restarted after a delay, up to a limit, on their slot or another one. The delay doubles with
each short run: a process that fails immediately is likely to fail again. A process returns to its slot. If its agent is
out of reach, the engine requests another slot, and the process waits for it indefinitely.
"""

from typing import Final

from controlplane.core.context import Context
from controlplane.core.events import Assignment
from controlplane.core.records import Revival
from controlplane.core.state import Job
from controlplane.core.states import Process, ProcessState, Server, Worker
from controlplane.protocol.emulation import Emulation

FIRST_PAUSE_MS: Final = 500

LONGEST_PAUSE_MS: Final = 60_000

SETTLED_MS: Final = 10_000
"""A run of at least this long, from its order on, is not short."""

PROVEN_MS: Final = 600_000
"""After a run of this long, the count of restarts is reset."""


def plan_restart(context: Context, process: Process, *, is_lost: bool) -> bool:
    """Plan the next start of a process that has just ended; False if it has no restarts left.

    A start that failed because the agent was out of reach does not count.
    """
    job, allowed = context.job, context.spec.elastic.restarts
    if not allowed:
        return False
    used = job.starts.restarts.get(process.title, 0)
    if context.now_ms - process.ordered_ms > PROVEN_MS:
        used = 0
    if process.state is not ProcessState.ORDERED or not is_lost or not used:
        if used >= allowed:
            return False
        used += 1
    job.starts.restarts[process.title] = used
    is_short = context.now_ms - process.ordered_ms < SETTLED_MS
    job.starts.short[process.title] = short = job.starts.short.get(process.title, 0) + 1 if is_short else 1
    job.starts.revivals[process.title] = Revival(
        number=used, due_ms=context.now_ms + pause_ms(short), wants_slot=is_lost
    )
    context.has_new_deadline = True
    return True


def pause_ms(number: int) -> int:
    """The delay in ms after the ``number``-th short run in a row; the first may have been a long one."""
    return int(min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** min(number - 1, 16)))


def end_reason(context: Context, process: Process, why: str) -> str:
    """Why a process ended and what follows, to complete a sentence that begins with its name."""
    allowed, revival = context.spec.elastic.restarts, context.job.starts.revivals.get(process.title)
    if revival is None:
        used = context.job.starts.restarts.get(process.title, 0)
        times = "once" if used == 1 else f"{used} times"
        return f"{why}; it was started again {times}, the maximum" if used else why
    which = f"{why}; restart {revival.number} of {allowed}"
    if revival.wants_slot:
        return f"{which} waits for a free {process.role} slot: its machine is unreachable"
    return f"{which} in {(revival.due_ms - context.now_ms) / 1000:g} s"


def next_restarts_ms(job: Job) -> list[int]:
    """The times at which processes should be restarted."""
    return [revival.due_ms for revival in job.starts.revivals.values() if not revival.wants_slot]


def start_due(context: Context) -> None:
    """Start processes whose delay is over; request another slot where the agent is out of reach."""
    job = context.job
    for title, revival in list(job.starts.revivals.items()):
        if revival.wants_slot or revival.due_ms > context.now_ms:
            continue
        process = _named(job, title)
        if process.agent in job.starts.away:
            revival.wants_slot = True
            context.report_process(process, end_reason(context, process, "its pause is over"))
        else:
            start_instance(context, slot_of(process))


def take_slots(context: Context, assignments: list[Assignment]) -> bool:
    """Start processes that wait for a slot on those that the scheduler found; False if none waited."""
    job = context.job
    waiting = [each for each in assignments if (found := job.starts.revivals.get(_title(each))) and found.wants_slot]
    for assignment in waiting:
        start_instance(context, assignment)
    return bool(waiting)


def await_slot(context: Context, rank: int) -> None:
    """Add a worker for which no slot was free when the job began."""
    job, now_ms = context.job, context.now_ms
    job.workers[rank] = worker = Worker(
        role="worker",
        index=rank,
        instance=job.instance_name(f"w{rank}", 0),
        agent=0,
        slot=0,
        emulate=None,
        state=ProcessState.LOST,
        since_ms=now_ms,
        seen_ms=now_ms,
    )
    job.starts.revivals[worker.title] = Revival(number=0, due_ms=now_ms, wants_slot=True)
    context.report_process(worker, "no slot is free: it joins when one is")


def slot_of(process: Process) -> Assignment:
    """The present or last slot of a process."""
    return Assignment(
        role=process.role,
        index=process.index,
        agent=process.agent,
        slot=process.slot,
        emulate=process.emulate,
        power=process.power,
    )


def _machine(context: Context, assignment: Assignment) -> Emulation | None:
    """The machine to emulate for a worker: from the job's spec, else from its slot."""
    machines = context.spec.emulate
    if machines is None or assignment.role != "worker" or machines[assignment.index] is None:
        return assignment.emulate
    return machines[assignment.index]


def start_instance(context: Context, assignment: Assignment) -> None:
    """Order a new instance of a process."""
    job, title = context.job, _title(assignment)
    revival = job.starts.revivals.pop(title, None)
    job.starts.counts[title] = life = job.starts.counts.get(title, 0) + 1
    kind: type[Worker | Server] = Worker if assignment.role == "worker" else Server
    process = kind(
        role=assignment.role,
        index=assignment.index,
        instance=job.instance_name(title, life),
        agent=assignment.agent,
        slot=assignment.slot,
        emulate=_machine(context, assignment),
        power=assignment.power,
        state=ProcessState.ORDERED,
        since_ms=context.now_ms,
        seen_ms=context.now_ms,
        ordered_ms=context.now_ms,
    )
    if isinstance(process, Server) and assignment.index in job.servers:
        process.tensor_sizes = job.servers[assignment.index].tensor_sizes
        process.draining = job.servers[assignment.index].draining
    context.add_process(process)
    again = f", restart {revival.number} of {context.spec.elastic.restarts}" if revival else ""
    reason = f"{title} goes to slot {assignment.slot} of agent {assignment.agent}{again}"
    context.start_process(process, reason)
    context.report_process(process, reason)


def _title(assignment: Assignment) -> str:
    return f"{assignment.role[0]}{assignment.index}"


def _named(job: Job, title: str) -> Process:
    index = int(title[1:])
    return job.workers[index] if title[0] == "w" else job.servers[index]
