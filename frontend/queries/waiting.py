"""Computes the cost of waiting per worker, job and day. Lost time is the time in which a worker waits for other workers
(``waiting_s`` of a report) or for the control plane (``coordination_s``), as a fraction of worker time; the rest is
data loading, compute and communication. Live jobs are summed; simulated jobs are counted separately.

Workers and days of a job add up to the totals kept by ingest. Reports of repeated iterations are in those totals but in
no worker's history: they have a separate row below the workers, and are spread over the days.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TypeVar

import numpy as np
from django.conf import settings
from numpy.typing import NDArray

from controlplane.jobs.models import Job
from controlplane.jobs.selectors import job_synchronization, jobs_synchronization
from controlplane.jobs.stored_specs import stored_spec
from controlplane.jobs.viewing import visible
from controlplane.telemetry.history import Windows
from controlplane.telemetry.metrics import ITERATION, LOST
from controlplane.telemetry.models import Cursor
from frontend import formats
from frontend.figures.rows import Waited, Waiting
from frontend.queries.cache import kept, key_of, of_job
from frontend.queries.figures import MAX_SUMMED
from frontend.queries.history import History
from frontend.queries.legible import legible
from frontend.queries.staleness import MAX_RANKS, mean_staleness, staleness

NOISE_S = 1e-6
"""Rounding differences of sums are smaller than this."""

MANY, WORST = 64, 32
"""With more workers than ``MANY``, the table lists the ``WORST`` that lost most."""

LEDGER_S = 3600
"""How long a job's part of the ledger is cached."""

T = TypeVar("T")

PERIODS = {"7": "7 days", "30": "30 days"}
"""Selectable periods of the page of all jobs, the default first."""

MAX_JOBS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Worker-seconds, and those lost to waiting for other workers and for the control plane."""

    whole_s: float = 0.0
    waiting_s: float = 0.0
    coordination_s: float = 0.0

    @property
    def lost_s(self) -> float:
        """Waiting plus coordination."""
        return self.waiting_s + self.coordination_s

    @property
    def share(self) -> float | None:
        """Lost time as a fraction of the whole."""
        return self.lost_s / self.whole_s if self.whole_s else None

    @property
    def price(self) -> str:
        """The cost of the lost time, if a price is set."""
        return price(self.lost_s)

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            whole_s=self.whole_s + other.whole_s,
            waiting_s=self.waiting_s + other.waiting_s,
            coordination_s=self.coordination_s + other.coordination_s,
        )

    def __mul__(self, part: float) -> "Spent":
        return Spent(
            whole_s=self.whole_s * part,
            waiting_s=self.waiting_s * part,
            coordination_s=self.coordination_s * part,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpent:
    """One job of the period, with its last policies."""

    job: Job
    batching: str
    barrier: str
    spent: Spent
    staleness: float | None
    """Mean staleness over the workers of its last roster, in iterations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """All live jobs of a period, by job and by day; both have the same total."""

    jobs: tuple[JobSpent, ...]
    days: tuple[tuple[date, Spent, Spent], ...]
    """Day, time of live jobs, and virtual time of simulated jobs, which is in no total and has no price."""
    total: Spent
    simulated: Spent
    since: date
    left_out: int
    """Jobs of the period that are not included: beyond ``MAX_JOBS``, or unreadable."""


def price(seconds: float) -> str:
    """The cost of worker-seconds; empty if no price is set."""
    if settings.WORKER_HOUR is None:
        return ""
    amount, unit = settings.WORKER_HOUR
    return formats.money(seconds / 3600 * amount, unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitedRow:
    """A row of the table of workers: one worker, or all those that have no row."""

    worker: Waited
    is_rest: bool = False

    @property
    def share(self) -> float | None:
        """Lost time as a fraction of the worker's time."""
        return self.worker.lost_s / self.worker.whole_s if self.worker.whole_s else None

    @property
    def price(self) -> str:
        """The cost of the lost time, if a price is set."""
        return price(self.worker.lost_s)


def rows_of(found: Waiting, *, everyone: bool = False) -> list[WaitedRow]:
    """The workers by rank; of more than ``MANY``, unless ``everyone``, the ``WORST`` and one row for the rest."""
    if everyone or len(found.workers) <= MANY:
        return [WaitedRow(worker=each) for each in found.workers]
    order = sorted(found.workers, key=lambda each: (-each.lost_s, each.rank))
    rest = _rest(order[WORST:])
    return [*(WaitedRow(worker=each) for each in order[:WORST]), WaitedRow(worker=rest, is_rest=True)]


def _rest(workers: Sequence[Waited]) -> Waited:
    """Their sums, their mean staleness and their highest."""
    means = [each.staleness for each in workers if each.staleness is not None]
    most = [each.staleness_most for each in workers if each.staleness_most is not None]
    return Waited(
        rank=workers[0].rank,
        label=f"{len(workers)} others",
        data_s=sum(each.data_s for each in workers),
        compute_s=sum(each.compute_s for each in workers),
        communication_s=sum(each.communication_s for each in workers),
        waiting_s=sum(each.waiting_s for each in workers),
        coordination_s=sum(each.coordination_s for each in workers),
        staleness=sum(means) / len(means) if means else None,
        staleness_most=max(most, default=None),
    )


def accounts(job: Job) -> tuple[Waiting, dict[date, Spent]]:
    """``waiting`` and ``days_of``, read once for all viewers until the job changes."""
    return of_job("waiting", job, _accounts)


def waiting(job: Job) -> Waiting:
    """Every worker of a job, by rank; only the first ``MAX_RANKS`` of a very large roster."""
    return _waiting(job, _windows(job))


def days_of(job: Job) -> dict[date, Spent]:
    """The lost time of each day (UTC); a window of merged iterations counts for the day of its middle.

    The days add up to the job's totals: time in no worker's history, such as repeated iterations, is distributed
    over the days in proportion.
    """
    return _days(job, _windows(job))


def _accounts(job: Job) -> tuple[Waiting, dict[date, Spent]]:
    found = _windows(job)
    return _waiting(job, found), _days(job, found)


def _windows(job: Job) -> dict[int, Windows]:
    workers = min(stored_spec(job).workers, MAX_RANKS)
    history = History(job)
    return history.windows(("at_ms", *ITERATION), history.width(MAX_SUMMED, workers), range(workers))


def _waiting(job: Job, found: Mapping[int, Windows]) -> Waiting:
    ahead, recent = staleness(job, sorted(found))
    rows = tuple(_waited(rank, found[rank], ahead.get(rank)) for rank in sorted(found))
    waited, coordinated, whole = (
        sum(getattr(row, name) for row in rows) for name in ("waiting_s", "coordination_s", "whole_s")
    )
    return Waiting(
        workers=rows,
        again_s=_beyond(job.waiting_s, waited),
        again_coordination_s=_beyond(job.coordination_s, coordinated),
        again_whole_s=_beyond(job.worker_seconds, whole),
        barrier=job_synchronization(job).barrier.name,
        recent=recent,
    )


def _days(job: Job, found: Mapping[int, Windows]) -> dict[date, Spent]:
    days: dict[date, Spent] = defaultdict(Spent)
    for windows in found.values():
        at_ms = windows.mean("at_ms")
        whole = np.sum([windows.of(name, "sum") for name in ITERATION], axis=0)
        waited, coordinated = (windows.of(name, "sum") for name in LOST)
        day = (at_ms // 86_400_000).astype(np.int64)
        for number in np.unique(day):
            there = day == number
            when = datetime.fromtimestamp(int(number) * 86_400, tz=UTC).date()
            days[when] += Spent(
                whole_s=float(np.sum(whole[there])),
                waiting_s=float(np.sum(waited[there])),
                coordination_s=float(np.sum(coordinated[there])),
            )
    return _with_rest(job, dict(sorted(days.items())))


def _with_rest(job: Job, days: dict[date, Spent]) -> dict[date, Spent]:
    found = sum(days.values(), Spent())
    rest = Spent(
        whole_s=_beyond(job.worker_seconds, found.whole_s),
        waiting_s=_beyond(job.waiting_s, found.waiting_s),
        coordination_s=_beyond(job.coordination_s, found.coordination_s),
    )
    return {day: spent + rest * (spent.whole_s / found.whole_s) for day, spent in days.items() if spent.whole_s}


def ledger(today: date, days: int = 30) -> Ledger:
    """Every job that ran within the last ``days`` days, the most expensive first."""
    since = today - timedelta(days=days - 1)
    begin = datetime(since.year, since.month, since.day, tzinfo=UTC)
    ran = visible(Job.objects.filter(started_at__isnull=False)).exclude(finished_at__lt=begin).order_by("-id")
    live, played = ran.filter(simulation=None), ran.exclude(simulation=None)
    found, simulated = _spent_by(live[:MAX_JOBS], since), _by_day(_spent_by(played[:MAX_JOBS], since).values())
    spent = {job: sum(of_job.values(), Spent()) for job, of_job in found.items()}
    by_day = _by_day(found.values())
    return Ledger(
        jobs=tuple(sorted(_job_rows(spent), key=lambda each: (-each.spent.lost_s, each.job.pk))),
        days=tuple((day, by_day[day], simulated[day]) for day in sorted({*by_day, *simulated}, reverse=True)),
        total=sum(spent.values(), Spent()),
        simulated=sum(simulated.values(), Spent()),
        since=since,
        left_out=live.count() - len(found),
    )


def _spent_by(jobs: Iterable[Job], since: date) -> dict[Job, dict[date, Spent]]:
    """Lost time per day of each readable job."""
    read = {job: legible(job, lambda job: _kept(job, "days", days_of))[0] for job in jobs}
    return {
        job: {day: spent for day, spent in days.items() if day >= since}
        for job, days in read.items()
        if days is not None
    }


def _by_day(jobs: Iterable[dict[date, Spent]]) -> dict[date, Spent]:
    days: dict[date, Spent] = defaultdict(Spent)
    for found in jobs:
        for day, each in found.items():
            days[day] += each
    return days


def _job_rows(spent: Mapping[Job, Spent]) -> Iterator[JobSpent]:
    chosen = jobs_synchronization(spent)
    for job, each in spent.items():
        if each.whole_s:
            yield JobSpent(
                job=job,
                batching=chosen[job.pk].batching.name if job.pk in chosen else "unknown",
                barrier=chosen[job.pk].barrier.name if job.pk in chosen else "unknown",
                spent=each,
                staleness=legible(job, lambda job: _kept(job, "staleness", mean_staleness))[0],
            )


def _kept(job: Job, name: str, read: Callable[[Job], T]) -> T:
    """The result of ``read``, cached until the job's history changes."""
    position = Cursor.objects.filter(job=job, stream="events").values_list("incarnation", "position").first()
    return kept(key_of("lost", name, job.pk, job.iteration, position), lambda: read(job), LEDGER_S)


def _waited(rank: int, windows: Windows, ahead: NDArray[np.int64] | None) -> Waited:
    sums = {name: float(windows.of(name, "sum").sum()) for name in ITERATION}
    known = ahead is not None and len(ahead) > 0
    return Waited(
        rank=rank,
        label=f"w{rank}",
        data_s=sums["data_s"],
        compute_s=sums["compute_s"],
        communication_s=sums["push_s"] + sums["pull_s"],
        waiting_s=sums["waiting_s"],
        coordination_s=sums["coordination_s"],
        staleness=float(ahead.mean()) if known and ahead is not None else None,
        staleness_most=int(ahead.max()) if known and ahead is not None else None,
    )


def _beyond(total: float, found: float) -> float:
    return total - found if total - found > NOISE_S * max(1.0, total) else 0.0
