"""Processes that ended are started again: after a pause, so many times, on their slot or another one.

The pause doubles with each life that was short: what fails at once will fail again, what was killed at work will not.

A process returns to the slot that it had. Where its agent is out of reach the scheduler is asked for another slot, and
the process waits for that as long as it takes.
"""

from typing import Final

from controlplane.core.events import Assignment
from controlplane.core.handling import Handling
from controlplane.core.records import Process, Revival, Server, Worker
from controlplane.core.state import Job
from controlplane.core.states import ProcessState
from controlplane.protocol.emulation import Emulation

FIRST_PAUSE_MS: Final = 500
LONGEST_PAUSE_MS: Final = 60_000

SETTLED_MS: Final = 10_000
"""A life that was so long, from its order on, was not short."""

PROVEN_MS: Final = 600_000
"""A process that lived so long has proved itself: its restarts count anew."""


def plan(handling: Handling, process: Process, *, is_lost: bool) -> bool:
    """Plan the next start of a process that has just ended; False where it has had as many as it may.

    One that never ran since its agent was out of reach has used up nothing.
    """
    job, allowed = handling.job, handling.spec.elastic.restarts
    if not allowed:
        return False
    used = job.lives.restarts.get(process.title, 0)
    if handling.now_ms - process.ordered_ms > PROVEN_MS:
        used = 0
    if process.state is not ProcessState.ORDERED or not is_lost or not used:
        if used >= allowed:
            return False
        used += 1
    job.lives.restarts[process.title] = used
    is_short = handling.now_ms - process.ordered_ms < SETTLED_MS
    job.lives.short[process.title] = short = job.lives.short.get(process.title, 0) + 1 if is_short else 1
    job.lives.revivals[process.title] = Revival(
        number=used, due_ms=handling.now_ms + pause_ms(short), wants_slot=is_lost
    )
    handling.has_new_deadline = True
    return True


def pause_ms(number: int) -> int:
    """The pause after the ``number``-th short life in a row; the first may have been a long one."""
    return int(min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** min(number - 1, 16)))


def told(handling: Handling, process: Process, why: str) -> str:
    """Why it ended, and what follows, as the end of a sentence that begins with its name."""
    allowed, revival = handling.spec.elastic.restarts, handling.job.lives.revivals.get(process.title)
    if revival is None:
        used = handling.job.lives.restarts.get(process.title, 0)
        times = "once" if used == 1 else f"{used} times"
        return f"{why}; it was started again {times}, which is all that is allowed" if used else why
    which = f"{why}; restart {revival.number} of {allowed}"
    if revival.wants_slot:
        return f"{which} waits for a free {process.role} slot: its machine is out of reach"
    return f"{which} in {(revival.due_ms - handling.now_ms) / 1000:g} s"


def next_ms(job: Job) -> list[int]:
    """When processes are to be started again."""
    return [revival.due_ms for revival in job.lives.revivals.values() if not revival.wants_slot]


def start_due(handling: Handling) -> None:
    """Start those whose pause is over; whose agent is out of reach asks for another slot."""
    job = handling.job
    for title, revival in list(job.lives.revivals.items()):
        if revival.wants_slot or revival.due_ms > handling.now_ms:
            continue
        process = _named(job, title)
        if process.agent in job.lives.away:
            revival.wants_slot = True
            handling.tell_process(process, told(handling, process, "its pause is over"))
        else:
            start(handling, slot_of(process))


def take_slots(handling: Handling, assignments: list[Assignment]) -> bool:
    """Start those who wait for a slot on the ones that the scheduler found; False if nobody did."""
    job = handling.job
    waiting = [each for each in assignments if (found := job.lives.revivals.get(_title(each))) and found.wants_slot]
    for assignment in waiting:
        start(handling, assignment)
    return bool(waiting)


def await_slot(handling: Handling, rank: int) -> None:
    """A worker that was asked for, and for which no slot was free when the job began."""
    job, now_ms = handling.job, handling.now_ms
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
    job.lives.revivals[worker.title] = Revival(number=0, due_ms=now_ms, wants_slot=True)
    handling.tell_process(worker, "no slot is free: it joins when there is one")


def slot_of(process: Process) -> Assignment:
    """The slot that a process has, or had."""
    return Assignment(
        role=process.role, index=process.index, agent=process.agent, slot=process.slot, emulate=process.emulate
    )


def _machine(handling: Handling, assignment: Assignment) -> Emulation | None:
    """What a worker's machine is to be: the job may say so, else its slot does."""
    asked = handling.spec.emulate
    if asked is None or assignment.role != "worker" or asked[assignment.index] is None:
        return assignment.emulate
    return asked[assignment.index]


def start(handling: Handling, assignment: Assignment) -> None:
    """Order a new life of a process."""
    job, title = handling.job, _title(assignment)
    revival = job.lives.revivals.pop(title, None)
    job.lives.counts[title] = life = job.lives.counts.get(title, 0) + 1
    kind: type[Worker | Server] = Worker if assignment.role == "worker" else Server
    process = kind(
        role=assignment.role,
        index=assignment.index,
        instance=job.instance_name(title, life),
        agent=assignment.agent,
        slot=assignment.slot,
        emulate=_machine(handling, assignment),
        state=ProcessState.ORDERED,
        since_ms=handling.now_ms,
        seen_ms=handling.now_ms,
        ordered_ms=handling.now_ms,
    )
    if isinstance(process, Server) and assignment.index in job.servers:
        process.tensor_sizes = job.servers[assignment.index].tensor_sizes
        process.draining = job.servers[assignment.index].draining
    handling.add_process(process)
    again = f", restart {revival.number} of {handling.spec.elastic.restarts}" if revival else ""
    reason = f"{title} goes to slot {assignment.slot} of agent {assignment.agent}{again}"
    handling.start_process(process, reason)
    handling.tell_process(process, reason)


def _title(assignment: Assignment) -> str:
    return f"{assignment.role[0]}{assignment.index}"


def _named(job: Job, title: str) -> Process:
    index = int(title[1:])
    return job.workers[index] if title[0] == "w" else job.servers[index]
