"""Computes the workers' activity per second of the last minute, from their reports: the sparklines of machine cards.

Sums are cached between requests of all viewers. Each request reads only the newer rows, of all jobs at once and by
primary key, so the minute of a large cluster is never read twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import numpy as np
from django.core.cache import cache
from django.db.models import Q
from numpy.typing import NDArray

from controlplane.fleet.models import Agent
from controlplane.jobs.models import Process
from controlplane.telemetry.batches import decoded_batch
from controlplane.telemetry.metrics import BUSY, ITERATION
from controlplane.telemetry.models import ReportBatch

SECONDS: Final = 60
AHEAD: Final = 5
"""Future seconds that are kept as well: other clocks timestamp the reports, and the current second is not over."""

MOST: Final = 5_000
"""Approximate maximum number of reports per request, the latest: after a long pause, the line of a fast cluster is
incomplete at first."""

BATCHES: Final = 64
"""Number of batches fetched at a time."""

SURE: Final = 0.5
"""Seconds with less known time than this are omitted."""

KEY: Final = "last-minute"

Worker = tuple[int, str]
"""Job id and process instance."""

Seconds = NDArray[np.float32]
"""Per second of a worker: the time covered by its reports, and its busy time."""

Line = tuple[float | None, ...]
"""The busy fraction of each second, oldest first; None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyMinute:
    """The last minute of all workers of a machine."""

    line: Line = ()
    busy: float | None = None
    """Busy fraction of the whole minute: data loading, compute and communication over the known time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Minute:
    """The known values of the seconds from ``first`` on."""

    first: int
    last_row: int
    """The newest included batch of reports."""
    workers: Mapping[Worker, Seconds]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """Reports as columns; times in seconds, ``ended`` since 1970."""

    workers: Sequence[Worker]
    ended: NDArray[np.float64]
    whole_s: NDArray[np.float64]
    busy_s: NDArray[np.float64]


def busy_lines(agents: Sequence[Agent], now: datetime) -> dict[int, BusyMinute]:
    """Activity by machine over the ``SECONDS`` before ``now``; machines without reports are omitted."""
    first = int(now.timestamp()) - SECONDS
    known = _look(first)
    places = _machines(agents, known.workers, now)
    found: dict[int, Seconds] = {}
    for worker, agent in places.items():
        found[agent] = found.get(agent, 0) + known.workers[worker]
    return {agent: busy_minute(seconds) for agent, seconds in found.items()}


def _look(first: int) -> Minute:
    kept: Minute | None = cache.get(KEY)
    minute = kept or Minute(first=first, last_row=0, workers={})
    reports, last_row = _read_after(minute.last_row)
    minute = added(minute, reports, first, last_row)
    cache.set(KEY, minute, SECONDS)
    return minute


def _read_after(last_row: int) -> tuple[Reports, int]:
    """The latest reports of all jobs after that batch, and the newest batch."""
    newest = ReportBatch.objects.filter(pk__gt=last_row).order_by("-pk")
    workers: list[Worker] = []
    ended, parts = [np.empty(0)], [np.empty((len(ITERATION), 0))]
    last = last_row
    while page := list(newest.values_list("pk", "job_id", "data")[:BATCHES]):
        last = max(last, page[0][0])
        for _, job, data in page:
            reports = decoded_batch(bytes(data), ("at_ms", *ITERATION))
            workers += [(job, reports.instances[sender]) for sender in reports.columns["instance"]]
            ended.append(reports.columns["at_ms"] / 1000)
            parts.append(np.stack([reports.column(name) for name in ITERATION]))
        if len(workers) >= MOST or len(page) < BATCHES:
            break
        newest = newest.filter(pk__lt=page[-1][0])
    times = np.nan_to_num(np.concatenate(parts, axis=1))
    found = Reports(
        workers=workers,
        ended=np.concatenate(ended),
        whole_s=times.sum(axis=0),
        busy_s=times[: len(BUSY)].sum(axis=0),
    )
    return found, last


def added(minute: Minute, reports: Reports, first: int, last_row: int) -> Minute:
    """The minute from ``first`` on, with these reports added; workers without values in it are dropped.

    A worker waits before it works, so the busy time is placed at the end of the iteration.
    """
    passed = min(max(0, first - minute.first), SECONDS + AHEAD)
    workers = {
        worker: np.concatenate([seconds[:, passed:], np.zeros((2, passed), np.float32)], axis=1)
        for worker, seconds in minute.workers.items()
    }
    for worker in set(reports.workers) - workers.keys():
        workers[worker] = np.zeros((2, SECONDS + AHEAD), np.float32)
    begins = max(first, minute.first) + np.arange(SECONDS + AHEAD)
    parts = [_within(reports.ended - spent, reports.ended, begins) for spent in (reports.whole_s, reports.busy_s)]
    for place, worker in enumerate(reports.workers):
        for row, part in zip(workers[worker], parts, strict=True):
            row += part[place]
    left = {worker: seconds for worker, seconds in workers.items() if seconds.any()}
    return Minute(first=max(first, minute.first), last_row=last_row, workers=left)


def busy_minute(seconds: Seconds) -> BusyMinute:
    """The summary of one worker, or of the sum of several."""
    known, busy = (float(row) for row in seconds[:, :SECONDS].sum(axis=1))
    return BusyMinute(line=line(seconds), busy=min(1.0, busy / known) if known >= SURE else None)


def line(seconds: Seconds) -> Line:
    """The line of one worker, or of the sum of several."""
    known, busy = seconds[:, :SECONDS]
    return tuple(float(min(1.0, b / k)) if k >= SURE else None for k, b in zip(known, busy, strict=True))


def _within(begin: NDArray[np.float64], end: NDArray[np.float64], seconds: NDArray[np.int64]) -> NDArray[np.float64]:
    """Overlap of each interval with each second: a matrix of intervals by seconds."""
    until, since = np.minimum(end[:, None], seconds + 1), np.maximum(begin[:, None], seconds)
    parts: NDArray[np.float64] = np.clip(until - since, 0.0, 1.0)
    return parts


def _machines(agents: Sequence[Agent], workers: Mapping[Worker, Seconds], now: datetime) -> dict[Worker, int]:
    """The machine on which each worker runs or ran."""
    lately = Q(ended_at=None) | Q(ended_at__gt=now - timedelta(seconds=SECONDS))
    rows = Process.objects.filter(lately, role="worker", job__in={job for job, _ in workers}, agent__in=agents)
    found = {(job, instance): agent for job, instance, agent in rows.values_list("job_id", "instance", "agent_id")}
    return {worker: agent for worker in workers if (agent := found.get(worker)) is not None}
