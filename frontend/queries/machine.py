"""Reads one machine over all jobs: processes, speed, findings and log lines."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from django.db.models import Max, Q, QuerySet
from numpy.typing import NDArray

from controlplane.core.states import PROCESS_OVER
from controlplane.fleet.models import Agent, AgentSample
from controlplane.jobs.models import Flag, Process
from controlplane.jobs.stored_specs import UnreadableSpec
from controlplane.jobs.viewing import viewing_key, visible
from controlplane.telemetry.metrics import BUSY
from controlplane.telemetry.models import LogLine
from frontend.figures.rows import Load, Speeds, SpeedSeries
from frontend.queries.energy import energy
from frontend.queries.history import History

MOST_INSTANCES = 50
SERIES = 8
"""Maximum number of workers whose speed is drawn, the latest."""

ITERATIONS = 2_000
"""Maximum number of iterations of each, the latest."""

MAX_BATCHES = 200
"""Maximum number of batch sizes of a worker; more would be noise."""

SAMPLES = 8_640
"""One day of load, a sample every 10 s."""

LINES, FLAGS = 40, 30


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHere:
    """The job of a process, for its buttons."""

    id: int
    over: bool
    attached: bool = False

    @property
    def prefix(self) -> str:
        """Prefix of the buttons' ids: a machine may run a w0 of several jobs."""
        return f"job-{self.id}-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One process that ran on this machine."""

    of: JobHere
    job: int
    job_name: str
    title: str
    role: str
    index: int
    state: str
    reason: str
    share: int
    iteration: int
    samples_per_second: float | None
    """Samples per busy second over its last iterations; None: not measured."""
    joules_per_sample: float | None
    """Over the whole job, for the machine of its rank's latest process; None: not measured."""
    flags: int
    """Findings about it while this instance ran."""
    started_at: datetime
    ended_at: datetime | None
    over: bool
    returns: bool
    """Whether its next instance is planned."""


def instances(agent: Agent) -> list[Instance]:
    """Workers and servers that ran on this machine, latest first."""
    rows = list(_processes(agent)[:MOST_INSTANCES])
    found = list(flags(agent))
    workers = [row for row in rows[:SERIES] if row.role == "worker"]
    speeds = {row.pk: _speed(row) for row in workers}
    joules = {row.pk: _joules(row) for row in workers}
    return [
        Instance(
            of=JobHere(id=row.job_id, over=row.job.is_over, attached=row.job.launch == "attached"),
            job=row.job_id,
            job_name=row.job.name,
            title=f"{row.role[:1]}{row.index}",
            role=row.role,
            index=row.index,
            state=row.state,
            reason=row.reason,
            share=row.share,
            iteration=row.iteration,
            samples_per_second=speeds.get(row.pk),
            joules_per_sample=joules.get(row.pk),
            flags=sum(_is_about(flag, row) for flag in found),
            started_at=row.started_at,
            ended_at=row.ended_at,
            over=row.state in PROCESS_OVER,
            returns=row.restart is not None or row.wants_slot,
        )
        for row in rows
    ]


def flags(agent: Agent) -> list[Flag]:
    """Findings about workers and servers while they ran on this machine, open ones first."""
    rows = list(_processes(agent)[:MOST_INSTANCES])
    if not rows:
        return []
    about = Q()
    for row in rows:
        about |= Q(job=row.job_id, subject=row.role, rank=row.index)
    found = Flag.objects.filter(about).select_related("job").order_by("-opened_at", "-id")[: 4 * FLAGS]
    here = [flag for flag in found if any(_is_about(flag, row) for row in rows)][:FLAGS]
    return sorted(here, key=lambda flag: flag.closed_at is not None)


def lines(agent: Agent) -> list[LogLine]:
    """The last log lines of processes on this machine, oldest first."""
    processes = Q()
    rows = list(_processes(agent)[:SERIES])
    for row in rows:
        processes |= Q(job=row.job_id, role=row.role, index=row.index, instance=row.instance)
    return list(LogLine.objects.filter(processes).order_by("-id")[:LINES])[::-1] if rows else []


def speeds(agent: Agent) -> Speeds:
    """The speed of its latest workers at each of their batch sizes."""
    rows = [row for row in _processes(agent)[:MOST_INSTANCES] if row.role == "worker"][:SERIES]
    found = [(row, *_measured(row)) for row in rows]
    series = tuple(_series(row, batch, busy) for row, batch, busy in found if len(batch))
    return Speeds(series=series, reports=sum(len(batch) for _, batch, _ in found))


def load(agent: Agent) -> Load:
    """The load of the last day."""
    rows = AgentSample.objects.filter(agent=agent).order_by("-at").values_list("at", "cpu", "memory")[:SAMPLES]
    found = list(rows)[::-1]
    return Load(
        at_ms=np.array([int(at.timestamp() * 1000) for at, _, _ in found], np.int64),
        cpu=np.array([cpu for _, cpu, _ in found], np.float64),
        memory=np.array([memory for _, _, memory in found], np.float64),
    )


def moved(agent: Agent) -> tuple[object, ...]:
    """A value that changes whenever the figures' data change."""
    sample = AgentSample.objects.filter(agent=agent).aggregate(last=Max("id"))["last"]
    latest = Process.objects.filter(agent=agent).aggregate(a=Max("id"), b=Max("job__iteration"))
    return viewing_key(), sample, *latest.values()


def _processes(agent: Agent) -> "QuerySet[Process]":
    """All instances on this machine, latest first."""
    rows = visible(Process.objects.filter(agent=agent), "job__team")
    return rows.select_related("job").order_by("-started_at", "-id")


def _is_about(flag: Flag, row: Process) -> bool:
    """Whether the finding is about this instance: it was opened while it ran."""
    same = (flag.job_id, flag.subject, flag.rank) == (row.job_id, row.role, row.index)
    return same and flag.opened_at >= row.started_at and (row.ended_at is None or flag.opened_at <= row.ended_at)


def _measured(row: Process) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Batch size and busy seconds of each of this instance's last iterations."""
    first = max(0, row.counts_from or 0, row.iteration - ITERATIONS)
    found = History(row.job).columns(("samples", *BUSY), ranks=(row.index,), first=first, last=row.iteration + 1)
    block = found.get(row.index)
    if block is None:
        return np.empty(0, np.int64), np.empty(0)
    busy = np.sum([block[name] for name in BUSY], axis=0)
    kept = (block["samples"] > 0) & (busy > 0)
    return block["samples"][kept], busy[kept]


def _speed(row: Process) -> float | None:
    batch, busy = _measured(row)
    return float(batch[-20:].sum() / busy[-20:].sum()) if len(batch) else None


def _joules(row: Process) -> float | None:
    with suppress(UnreadableSpec):
        return next((used.joules_per_sample for used in energy(row.job, (row.index,))), None)
    return None


def _series(row: Process, batch: NDArray[np.int64], busy: NDArray[np.float64]) -> SpeedSeries:
    sizes = np.unique(batch)[-MAX_BATCHES:]
    rates = [batch[batch == size] / busy[batch == size] for size in sizes]
    low, median, high = (np.array([np.quantile(each, part) for each in rates]) for part in (0.25, 0.5, 0.75))
    return SpeedSeries(
        label=f"job {row.job_id} w{row.index}",
        batch=sizes.astype(np.int64),
        samples_per_second=median,
        low=low,
        high=high,
    )
