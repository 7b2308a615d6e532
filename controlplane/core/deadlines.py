"""What only time decides, and when that will be.

*Dead* is a process without any sign of life for ``SILENCE_MS``; after a silence of the control plane itself, for
``GRACE_MS`` more nobody is. The engine names its next deadline; a driver that reaches it says ``TimePassed``.
"""

from controlplane.core import asynchrony, ending, lifecycle, releases
from controlplane.core.events import ControlPlaneResumed, TimePassed
from controlplane.core.handling import Handling
from controlplane.core.state import Job, Process
from controlplane.core.states import JOB_OVER, JobState, ProcessState

SILENCE_MS = 4_000
"""Without a sign of life for so long, a process is dead."""

START_MS = 60_000
"""A process that was ordered has so long to say hello."""

GRACE_MS = 5_000
"""How long nobody is declared dead after the control plane itself was silent."""


def next_deadline(job: Job) -> int | None:
    """When time alone will have something to decide, in milliseconds of the log's clock; None: never."""
    if job.state in JOB_OVER:
        return job.since_ms + ending.SLOTS_RETURN_MS if job.holds_slots else None
    times = [_dead_at(job, process) for process in job.live_processes if process.state is not ProcessState.FINISHED]
    if job.running_ms is not None and job.spec is not None and job.spec.stop.seconds is not None:
        limit = job.running_ms + job.paused_ms + int(job.spec.stop.seconds * 1000)
        times += [limit] if job.stop_at is None and job.state is not JobState.PAUSED else []
    return min(times, default=None)


def on_time_passed(handling: Handling, event: TimePassed) -> None:
    """Declare the dead, end what is over its time, give back slots that were held for too long."""
    job = handling.job
    for process in job.live_processes:
        seen_ms = event.seen.get(f"{process.role}:{process.index}:{process.instance}", 0)
        process.seen_ms = max(process.seen_ms, min(seen_ms, handling.now_ms))
    if job.state in JOB_OVER:
        if handling.now_ms >= job.since_ms + ending.SLOTS_RETURN_MS:
            ending.return_slots(handling, late=True)
        return
    _declare_dead(handling)
    _end_after_seconds(handling)
    if job.state not in JOB_OVER:
        asynchrony.on_time_passed(handling)


def on_resumed(handling: Handling, event: ControlPlaneResumed) -> None:
    """Deadlines count afresh: the silence was ours."""
    handling.job.resumed_ms = handling.now_ms


def _declare_dead(handling: Handling) -> None:
    job = handling.job
    for process in job.live_processes:
        if job.state in JOB_OVER:
            return
        if process.state is ProcessState.FINISHED or handling.now_ms < _dead_at(job, process):
            continue
        silent_s = (handling.now_ms - process.seen_ms) / 1000
        if process.state is ProcessState.ORDERED:
            lifecycle.lose(handling, process, f"did not say hello within {START_MS / 1000:g} s")
        else:
            lifecycle.lose(handling, process, f"gave no sign of life for {silent_s:.1f} s")


def _end_after_seconds(handling: Handling) -> None:
    job, asked_s = handling.job, handling.spec.stop.seconds
    if job.state is not JobState.RUNNING or job.running_ms is None or asked_s is None or job.stop_at is not None:
        return
    ran_s = (handling.now_ms - job.running_ms - job.paused_ms) / 1000
    if ran_s >= asked_s:
        releases.stop_soon(handling, f"it ran for {ran_s:.1f} s, {asked_s:g} s were asked for")


def _dead_at(job: Job, process: Process) -> int:
    allowed = START_MS if process.state is ProcessState.ORDERED else SILENCE_MS
    return max(process.seen_ms + allowed, job.resumed_ms + GRACE_MS)
