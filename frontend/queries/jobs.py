"""Reads jobs as rows of lists and as page headers."""

import shlex
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from django.core.paginator import Page, Paginator
from django.db.models import Q, QuerySet

from controlplane.core.states import JOB_OVER, JobState
from controlplane.jobs.blockers import Piece, Waiting
from controlplane.jobs.models import Flag, Job
from controlplane.jobs.selectors import (
    jobs_synchronization,
    submitted_jobs,
)
from controlplane.jobs.stored_specs import stored_spec, stored_specs
from controlplane.jobs.waiting import waiting_of
from controlplane.protocol.launching import WORKLOAD
from controlplane.protocol.spec import JobSpec, Synchronization
from controlplane.telemetry.present_costs import pressing
from frontend.queries.freshness import as_of
from frontend.queries.history import History, together
from frontend.queries.legible import legible

PER_PAGE = 25
RATE_ITERATIONS = 20
"""Number of latest iterations from which a running job's speed is measured."""
RATED = ("iteration", "at_ms", "samples")

SILENT = timedelta(seconds=10)
"""A job without a newer report has a throughput of 0."""

FILTERS: dict[str, frozenset[JobState]] = {
    "running": frozenset({JobState.SCHEDULED, JobState.STARTING, JobState.RUNNING, JobState.FINISHING}),
    "queued": frozenset({JobState.SUBMITTED}),
    "paused": frozenset({JobState.PAUSED}),
    "over": JOB_OVER,
}


COLUMNS: dict[str, str] = {
    "state": "State",
    "policy": "Policy",
    "iteration": "Iteration",
    "speed": "Samples/s",
    "waiting": "Lost time",
    "accuracy": "Accuracy",
    "loss": "Loss",
    "left": "Time left",
    "by": "Started by",
}
"""Columns that the user may hide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    """One job as a row or header. Rates are None if nothing was measured."""

    id: int
    name: str
    state: str
    since: datetime
    awaited: str
    waits: list[Piece]
    """Why it has not started, with the jobs that it waits for; empty once it has."""
    priority: int
    reason: str
    policy: str
    barrier: str
    """The current or last policies."""
    by_peers: bool
    """Whether the barrier is sampled by peers."""
    changed: bool
    """Whether one of the four policies has changed since submission."""
    attached: bool
    """Whether its ranks are started by a launcher."""
    command: str
    """The command of the script that agents start; empty: none."""
    workload: str
    submitted_by: str
    team: str
    """Its team; empty: none, all users see it."""
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    elapsed_s: float | None
    iteration: int
    iterations: int | None
    """The iteration limit, if there is one."""
    epochs: float | None
    """Passes over the training split so far."""
    left_s: float | None
    """Seconds until its iteration or time limit, whichever comes first, at the current speed."""
    target: float | None
    samples_per_second: float | None
    waiting_share: float | None
    coordination_share: float | None
    """Waiting for other workers and for the control plane, as fractions of all worker time so far."""
    loss: float | None
    accuracy: float | None
    flags: int
    """Open findings without a note."""
    over: bool
    model_bytes: int
    workers: int
    servers: int
    global_batch: int
    sized: bool
    """Whether these sizes are known: the ranks of an attached job report them."""
    simulation: int | None
    """The simulation to which it belongs."""
    as_of: datetime | None
    """The time of the measurements, if history is behind."""
    refused: str = ""
    """Why the job's spec or measurements cannot be read; values derived from them are then empty."""

    @property
    def shown_state(self) -> str:
        """The displayed state: "waiting for ranks" for an attached job without ranks."""
        waits = self.attached and not self.over and self.awaited.startswith("ranks")
        return "waiting for ranks" if waits else self.state

    @property
    def progress(self) -> float | None:
        """Its progress, 0 to 1, if known."""
        return min(1.0, self.iteration / self.iterations) if self.iterations else None

    @property
    def lost_share(self) -> float | None:
        """Waiting and coordination of workers, as a share of all their time so far."""
        return None if self.waiting_share is None else self.waiting_share + (self.coordination_share or 0.0)


def job_page(
    *, now: datetime, search: str = "", state: str = "", tag: str = "", team: str = "", number: str | int = 1
) -> tuple[Page[Job], list[JobLine]]:
    """One page of the matching jobs, newest first."""
    page = Paginator(matching(search=search, state=state, tag=tag, team=team), PER_PAGE).get_page(number)
    return page, lines(page.object_list, now)


def matching(*, search: str = "", state: str = "", tag: str = "", team: str = "") -> QuerySet[Job]:
    """The jobs that match, newest first."""
    rows = submitted_jobs()
    if team:
        rows = rows.filter(team__name=team)
    if tag:
        rows = rows.filter(tags__name=tag)
    if search:
        by_id = Q(pk=int(search)) if search.isdecimal() and len(search) < 18 else Q()
        rows = rows.filter(Q(name__icontains=search) | Q(submitted_by__username__icontains=search) | by_id)
    if state in FILTERS:
        rows = rows.filter(state__in=FILTERS[state])
    return rows


def lines(rows: Iterable[Job], now: datetime) -> list[JobLine]:
    """Jobs as lines; a job that cannot be read has a line with the reason."""
    found = list(rows)
    open_flags = Counter(flag.job_id for flag in pressing(Flag.objects.filter(job__in=found, closed_at=None), now))
    specs, _ = stored_specs(found)
    chosen, waits = jobs_synchronization(found, specs), waiting_of(found, now)

    def line(job: Job) -> JobLine:
        spec = specs[job.pk] if job.pk in specs else stored_spec(job)
        return job_line(job, now, spec, chosen[job.pk], waits.get(job.pk), flags=open_flags[job.pk])

    read = {job: legible(job, line) for job in found}
    return [
        line or _line(job, now, waits.get(job.pk), None, flags=open_flags[job.pk], refused=why, **UNKNOWN)
        for job, (line, why) in read.items()
    ]


def one_job(job: Job, now: datetime) -> JobLine:
    """One job by id.

    Raises:
        UnreadableSpec: if its stored spec is not valid in this release.
    """
    spec = stored_spec(job)
    chosen = jobs_synchronization([job], {job.pk: spec})[job.pk]
    return job_line(job, now, spec, chosen, waiting_of([job], now).get(job.pk))


def job_line(
    job: Job, now: datetime, spec: JobSpec, chosen: Synchronization, waits: Waiting | None = None, *, flags: int = 0
) -> JobLine:
    """One job as a line, with its policies, why it waits, and the number of findings that need attention."""
    return _line(
        job,
        now,
        waits,
        _pace(job, now),
        flags=flags,
        policy=chosen.batching.name,
        barrier=chosen.barrier.name,
        by_peers=chosen.barrier.parameters.get("sampling") == "peers",
        changed=chosen != spec.synchronization,
        sized=spec.takes_slots or job.generation > 0,
        command=shlex.join(spec.command or []),
        workload=_workload(spec),
        iterations=spec.stop.iterations,
        stops_after_s=spec.stop.seconds,
        target=spec.stop.accuracy,
        **_size(spec),
    )


class Pace(NamedTuple):
    """A running job's current rates per second."""

    samples: float
    iterations: float


UNKNOWN: Final[dict[str, Any]] = {
    **dict.fromkeys(("policy", "barrier", "workload"), "unknown"),
    "command": "",
    **dict.fromkeys(("iterations", "stops_after_s", "target")),
    **dict.fromkeys(("workers", "servers", "global_batch"), 0),
    **dict.fromkeys(("by_peers", "changed", "sized"), False),
}
"""Values for a job that cannot be read."""


def _line(
    job: Job,
    now: datetime,
    waits: Waiting | None,
    pace: Pace | None,
    *,
    flags: int,
    stops_after_s: float | None,
    **of_spec: Any,
) -> JobLine:
    """A line from the job's row and ``of_spec``."""
    measured = job.worker_seconds > 0
    elapsed_s = ((job.finished_at or now) - job.started_at).total_seconds() if job.started_at else None
    return JobLine(
        id=job.pk,
        name=job.name,
        state=job.state,
        since=job.state_since,
        awaited=waits.sentence if waits else job.awaited,
        waits=waits.pieces if waits else [],
        priority=job.priority,
        reason=job.reason,
        attached=job.launch == "attached",
        submitted_by=job.submitted_by.get_username() if job.submitted_by else "",
        team=job.team.name if job.team else "",
        created_at=job.created_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        elapsed_s=elapsed_s,
        iteration=job.iteration,
        epochs=job.samples / job.training_samples if job.training_samples else None,
        left_s=_left_s(job, of_spec["iterations"], stops_after_s, pace, elapsed_s),
        samples_per_second=_average(job) if job.is_over else pace.samples if pace else None,
        waiting_share=job.waiting_share if measured else None,
        coordination_share=job.coordination_share if measured else None,
        loss=job.loss,
        accuracy=job.accuracy,
        flags=flags,
        over=job.is_over,
        model_bytes=job.model_bytes if job.model_path else 0,
        simulation=job.simulation_id,
        as_of=None if job.is_over else as_of(job.pk),
        **of_spec,
    )


def _workload(spec: JobSpec) -> str:
    if not spec.attached:
        return f"{spec.workload.name} on {spec.workload.dataset}"
    return "custom training loop" if spec.workload.name == WORKLOAD else spec.workload.name


def _size(spec: JobSpec) -> dict[str, int]:
    return {"workers": spec.workers, "servers": spec.servers, "global_batch": spec.global_batch}


def _left_s(
    job: Job, iterations: int | None, stops_after_s: float | None, pace: Pace | None, elapsed_s: float | None
) -> float | None:
    if pace is None or elapsed_s is None:
        return None
    ends = []
    if iterations is not None and pace.iterations:
        ends.append((iterations - job.iteration) / pace.iterations)
    if stops_after_s is not None:
        ends.append(stops_after_s - elapsed_s)
    return max(0.0, min(ends)) if ends else None


def _average(job: Job) -> float | None:
    """Samples per second of a finished job."""
    took = (job.finished_at - job.started_at).total_seconds() if job.finished_at and job.started_at else 0.0
    return job.samples / took if took > 0 and job.samples else None


def speed(job: Job, now: datetime) -> float:
    """Current samples per second; 0 if nothing was measured."""
    pace = _pace(job, now)
    return pace.samples if pace else 0.0


def _pace(job: Job, now: datetime) -> Pace | None:
    """The rates of a running job over its last iterations; None if nothing was measured."""
    if job.state not in (JobState.RUNNING, JobState.FINISHING):
        return None
    columns = History(job).latest(("at_ms", "samples"), RATE_ITERATIONS)
    if not columns:
        return None
    iteration, at_ms, samples = together(columns, *RATED)
    oldest = iteration == iteration.min()
    silent = now.timestamp() - at_ms.max() / 1000 > SILENT.total_seconds()
    if oldest.all() or (silent and as_of(job.pk) is None):
        return Pace(samples=0.0, iterations=0.0)
    took = (at_ms.max() - at_ms[oldest].min()) / 1000
    if took <= 0:
        return None
    # The oldest iteration only starts the window's clock: its samples are not counted.
    return Pace(
        samples=float(samples[~oldest].sum() / took), iterations=float(iteration.max() - iteration.min()) / took
    )
