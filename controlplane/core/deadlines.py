"""What only time decides, and when that will be.

*Dead* is a process without any sign of life for ``SILENCE_MS``; after a silence of the control plane itself, for
``GRACE_MS`` more nobody is. The engine names its next deadline; a driver that reaches it says ``TimePassed``.
"""

import itertools
from collections.abc import Sequence

from controlplane.core import asynchrony, ending, lifecycle, releases, revival, roster
from controlplane.core.events import ControlPlaneResumed, ServerHeard, TimePassed, WorkerHeard
from controlplane.core.handling import Handling
from controlplane.core.records import Process
from controlplane.core.state import Job
from controlplane.core.states import AT_WORK, JOB_OVER, JobState, ProcessState
from controlplane.protocol.messages import ServerHello, WorkerHello

SILENCE_MS = 4_000
"""Without a sign of life for so long, a process is lost."""

START_MS = 60_000
"""A process that was ordered has so long to say hello."""

GRACE_MS = 5_000
"""How long nobody is declared lost after the control plane itself was silent."""


def next_deadline(job: Job) -> int | None:
    """When time alone will have something to decide, in milliseconds of the log's clock; None: never."""
    if job.state in JOB_OVER:
        return job.since_ms + ending.SLOTS_RETURN_MS if job.holds_slots else None
    processes = itertools.chain(job.workers.values(), job.servers.values())
    times = [_dead_at(job, process) for process in processes if process.state in AT_WORK]
    if job.running_ms is not None and job.spec is not None and job.spec.stop.seconds is not None:
        limit = job.running_ms + job.paused_ms + int(job.spec.stop.seconds * 1000)
        times += [limit] if job.end.stop_at is None and job.state is not JobState.PAUSED else []
    times += revival.next_ms(job) + ([] if job.end.by_ms is None else [job.end.by_ms])
    times += [due_ms for due_ms in (roster.enough_at_ms(job), _look_ms(job)) if due_ms and due_ms > job.lives.looked_ms]
    return min(times, default=None)


def _look_ms(job: Job) -> int | None:
    """While processes start, whether their agents are still there is looked at as often as a silence is noticed."""
    return job.lives.looked_ms + SILENCE_MS if job.lives.starting and job.lives.looked_ms else None


def deadline_after(job: Job, event: WorkerHeard | ServerHeard, known_ms: int | None) -> int | None:
    """``next_deadline`` or sooner, when nothing but this happened since ``known_ms`` was: without looking at everyone.

    A sign of life only pushes deadlines away, and an early one does no harm: it need not be looked for. But who has
    said hello is given less time from then on.
    """
    if not isinstance(event.message, (WorkerHello, ServerHello)):
        return known_ms
    process = job.workers.get(event.rank) if isinstance(event, WorkerHeard) else job.servers.get(event.index)
    if process is None or process.state not in AT_WORK:
        return known_ms
    dead_ms = _dead_at(job, process)
    return dead_ms if known_ms is None else min(known_ms, dead_ms)


def on_time_passed(handling: Handling, event: TimePassed) -> None:
    """Declare the lost, end what is over its time, give back slots that were held for too long."""
    job, now_ms = handling.job, handling.now_ms
    live = job.live_processes
    for process in live:
        seen_ms = min(event.seen.get(f"{process.role}:{process.index}:{process.instance}", 0), now_ms)
        if seen_ms > process.seen_ms:
            process.seen_ms = seen_ms
    if job.state in JOB_OVER:
        if handling.now_ms >= job.since_ms + ending.SLOTS_RETURN_MS:
            ending.return_slots(handling, late=True)
        return
    # Machines too are given time to come back where the silence was ours.
    was_ours = handling.now_ms < job.resumed_ms + GRACE_MS
    job.lives.looked_ms, job.lives.away = handling.now_ms, [] if was_ours else sorted(event.away)
    _declare_dead(handling, live)
    if job.state not in JOB_OVER:
        revival.start_due(handling)
        _begin_with_fewer(handling)
        _end_after_seconds(handling)
        ending.finish_if_all_have(handling)
    if job.state not in JOB_OVER:
        asynchrony.on_time_passed(handling)


def on_resumed(handling: Handling, event: ControlPlaneResumed) -> None:
    """Deadlines count afresh: the silence was ours."""
    handling.job.resumed_ms = handling.now_ms
    handling.job.lives.away = []


def _declare_dead(handling: Handling, live: Sequence[Process]) -> None:
    """Those on one machine die together, before anything is started again."""
    job = handling.job
    for process in live:
        if job.state in JOB_OVER:
            return
        # Losing a server ends every life, also those of this list.
        if process.state not in AT_WORK or handling.now_ms < _dead_at(job, process):
            continue
        silent_s = (handling.now_ms - process.seen_ms) / 1000
        is_lost = process.agent in job.lives.away
        if process.state is not ProcessState.ORDERED:
            lifecycle.lose(handling, process, f"gave no sign of life for {silent_s:.1f} s", is_lost=is_lost)
        elif is_lost:
            lifecycle.lose(handling, process, "could not start: its machine is out of reach", is_lost=True)
        else:
            lifecycle.lose(handling, process, f"did not say hello within {START_MS / 1000:g} s")


def _begin_with_fewer(handling: Handling) -> None:
    """Those who are missing at the beginning have had their time."""
    job = handling.job
    due_ms = roster.enough_at_ms(job)
    if due_ms is not None and handling.now_ms >= due_ms and (job.lives.starting or job.lives.revivals):
        roster.begin_when_ready(handling)


def _end_after_seconds(handling: Handling) -> None:
    job, asked_s = handling.job, handling.spec.stop.seconds
    if job.state is not JobState.RUNNING or job.running_ms is None or asked_s is None or job.end.stop_at is not None:
        return
    ran_s = (handling.now_ms - job.running_ms - job.paused_ms) / 1000
    if ran_s >= asked_s:
        releases.stop_soon(handling, f"it ran for {ran_s:.1f} s, {asked_s:g} s were asked for")


def _dead_at(job: Job, process: Process) -> int:
    starts = process.state is ProcessState.ORDERED and process.agent not in job.lives.away
    silent_ms, graced_ms = process.seen_ms + (START_MS if starts else SILENCE_MS), job.resumed_ms + GRACE_MS
    return silent_ms if silent_ms > graced_ms else graced_ms
