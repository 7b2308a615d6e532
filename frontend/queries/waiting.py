"""What waiting costs, per worker, job and day. One definition everywhere: the seconds in which a worker has finished
and waits for others (a report's ``waiting_s``), as a share of all workers' time.

Of one job its rows sum up to the totals that ingest keeps: what was reported in iterations that were done again is in
those, and in no worker's history, so it stands in a row of its own.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TypeVar

import numpy as np
from django.conf import settings
from django.core.cache import cache
from numpy.typing import NDArray

from controlplane.jobs.models import Job
from controlplane.jobs.selectors import job_synchronization
from controlplane.protocol.spec import parse_spec
from controlplane.telemetry.history import Windows, read_windows
from controlplane.telemetry.metrics import BUSY, ITERATION
from controlplane.telemetry.models import Cursor
from frontend import formats
from frontend.figures.rows import View, Waited, Waiting
from frontend.queries.figures import MAX_SUMMED, width_of
from frontend.queries.staleness import MAX_RANKS, mean_staleness, staleness

NOISE_S = 1e-6
"""Sums of the same numbers in another order differ by less."""

T = TypeVar("T")

DAYS = 30
MAX_JOBS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Worker-seconds, and those of them that were lost to waiting."""

    whole_s: float = 0.0
    lost_s: float = 0.0

    @property
    def share(self) -> float | None:
        """Lost, as a share of the whole."""
        return self.lost_s / self.whole_s if self.whole_s else None

    @property
    def price(self) -> str:
        """What the lost time cost, where a price is set."""
        return price(self.lost_s)

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(whole_s=self.whole_s + other.whole_s, lost_s=self.lost_s + other.lost_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpent:
    """One job of the days that are shown, under the policies that it was submitted with."""

    job: Job
    batching: str
    barrier: str
    spent: Spent
    staleness: float | None
    """Iterations, mean over the workers of its last roster: what a relaxed barrier paid for less waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """All jobs of the last days, by job and by day; both sum up to the same."""

    jobs: tuple[JobSpent, ...]
    days: tuple[tuple[date, Spent], ...]
    total: Spent
    since: date
    left_out: int
    """Jobs of these days beyond ``MAX_JOBS``: they are in no sum."""


def price(seconds: float) -> str:
    """What so many worker-seconds cost; empty where no price is set."""
    if settings.WORKER_HOUR is None:
        return ""
    amount, unit = settings.WORKER_HOUR
    return f"{formats.significant(seconds / 3600 * amount)} {unit}".strip()


def waiting(job: Job, view: View) -> Waiting:
    """Every worker of a job, by rank; of a very large roster the first ``MAX_RANKS``."""
    workers = min(parse_spec(job.spec).workers, MAX_RANKS)
    found = read_windows(job.pk, width_of(job, workers, MAX_SUMMED), range(workers), ("at_ms", *ITERATION))
    ahead, recent = staleness(job, sorted(found))
    rows = tuple(_waited(rank, found[rank], ahead.get(rank)) for rank in sorted(found))
    lost, whole = sum(row.waiting_s for row in rows), sum(row.whole_s for row in rows)
    return Waiting(
        workers=rows,
        again_s=_beyond(job.waiting_s, lost),
        again_whole_s=_beyond(job.busy_s + job.waiting_s + job.coordination_s, whole),
        barrier=job_synchronization(job).barrier.name,
        recent=recent,
    )


def days_of(job: Job) -> dict[date, Spent]:
    """What each day (UTC) lost; a stretch of merged iterations counts for the day in whose middle it lies."""
    workers = min(parse_spec(job.spec).workers, MAX_RANKS)
    found = read_windows(job.pk, width_of(job, workers, MAX_SUMMED), range(workers), ("at_ms", *ITERATION))
    days: dict[date, Spent] = defaultdict(Spent)
    for windows in found.values():
        at_ms = windows.mean("at_ms")
        whole = np.sum([windows.of(name, "sum") for name in ITERATION], axis=0)
        lost = windows.of("waiting_s", "sum")
        day = (at_ms // 86_400_000).astype(np.int64)
        for number in np.unique(day):
            there = day == number
            when = datetime.fromtimestamp(int(number) * 86_400, tz=UTC).date()
            days[when] += Spent(whole_s=float(np.sum(whole[there])), lost_s=float(np.sum(lost[there])))
    return dict(sorted(days.items()))


def ledger(today: date) -> Ledger:
    """Every job that ran within the last ``DAYS`` days, the costliest first."""
    since = today - timedelta(days=DAYS - 1)
    begin = datetime(since.year, since.month, since.day, tzinfo=UTC)
    ran = Job.objects.filter(started_at__isnull=False).exclude(finished_at__lt=begin).order_by("-id")
    jobs: list[JobSpent] = []
    days: dict[date, Spent] = defaultdict(Spent)
    for job in ran[:MAX_JOBS]:
        of_job = {day: spent for day, spent in _kept(job, "days", days_of).items() if day >= since}
        spent = sum(of_job.values(), Spent())
        if spent.whole_s:
            chosen = parse_spec(job.spec).synchronization
            jobs.append(
                JobSpent(
                    job=job,
                    batching=chosen.batching.name,
                    barrier=chosen.barrier.name,
                    spent=spent,
                    staleness=_kept(job, "staleness", mean_staleness),
                )
            )
        for day, each in of_job.items():
            days[day] += each
    return Ledger(
        jobs=tuple(sorted(jobs, key=lambda each: (-each.spent.lost_s, each.job.pk))),
        days=tuple(sorted(days.items(), reverse=True)),
        total=sum((each.spent for each in jobs), Spent()),
        since=since,
        left_out=max(0, ran.count() - MAX_JOBS),
    )


def _kept(job: Job, name: str, read: Callable[[Job], T]) -> T:
    """What ``read`` finds, kept while the job's history does not move."""
    position = Cursor.objects.filter(job=job, stream="events").values_list("incarnation", "position").first()
    key = f"waiting-{name}-{job.pk}-{job.iteration}-{position}".replace(" ", "")
    kept: tuple[T] | None = cache.get(key)
    if kept is None:
        kept = (read(job),)
        cache.set(key, kept, 3600)
    return kept[0]


def _waited(rank: int, windows: Windows, ahead: NDArray[np.int64] | None) -> Waited:
    sums = {name: float(windows.of(name, "sum").sum()) for name in ITERATION}
    known = ahead is not None and len(ahead) > 0
    return Waited(
        rank=rank,
        label=f"w{rank}",
        busy_s=sum(sums[name] for name in BUSY),
        waiting_s=sums["waiting_s"],
        coordination_s=sums["coordination_s"],
        staleness=float(ahead.mean()) if known and ahead is not None else None,
        staleness_most=int(ahead.max()) if known and ahead is not None else None,
    )


def _beyond(total: float, found: float) -> float:
    return total - found if total - found > NOISE_S * max(1.0, total) else 0.0
