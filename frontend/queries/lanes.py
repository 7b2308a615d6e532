"""Reads the data of a job's lanes: its last iterations, and the first ones with equal shares."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from django.core.cache import cache

from controlplane.core import hangs
from controlplane.core.choices import Unchanging
from controlplane.core.states import JobState
from controlplane.jobs.machines import ON_MACHINES
from controlplane.jobs.models import Decision, Flag, Job, Process
from controlplane.jobs.stored_specs import stored_spec
from controlplane.policies import registry
from controlplane.protocol.spec import JobSpec
from frontend.figures.holding import Shown, hold, keep_rows
from frontend.figures.lanes import Decided, Lane, Lanes, Phases, Verdict, estimated, merged, verdict
from frontend.queries.history import History

ITERATIONS = 10
MAX_ROWS = 2_000
MAX_LANES = 16
FEW_LANES = 8
"""With more workers, those that look the same are drawn as one."""
REMEMBERED_S = 60
"""How long displayed verdicts and rows are kept without viewers."""
WARM_UP = 1
"""Warm-up iterations of a job that are not used as iterations with equal shares."""
ATTACHED_WARM_UP = 16
"""The same for attached jobs, which also load kernels and wait for measurements."""
ENOUGH = 4
"""Minimum iterations with equal shares for the comparison of an attached job; with fewer, it is an estimate."""


class _Row(NamedTuple):
    rank: int
    generation: int
    iteration: int
    samples: int
    data_s: float
    compute_s: float
    push_s: float
    pull_s: float
    waiting_s: float
    coordination_s: float


def lanes(job: Job) -> Lanes:
    """The lanes of a job; for a large roster, the slowest workers and those that wait longest."""
    spec = stored_spec(job)
    window = max(1, min(ITERATIONS, MAX_ROWS // spec.workers))
    now = _by_rank(_last_roster(_recent(job, window)))
    measured = _even(job, spec, window, ATTACHED_WARM_UP if spec.attached else WARM_UP)
    estimates = spec.attached and len({row.iteration for row in measured}) < ENOUGH
    even = {} if estimates else _by_rank(measured)
    # With another roster, equal shares are of another size than the measured ones.
    comparable = now.keys() == even.keys()
    shares = _even_shares(spec.global_batch, sorted(now))
    where = machines(job)
    flagged = set(Flag.objects.filter(job=job, subject="worker", closed_at=None).values_list("rank", flat=True))
    rows = [
        Lane(
            rank=rank,
            machine=where.get(rank, ""),
            share=reports[-1].samples,
            now=_mean(reports),
            even_share=shares[rank],
            even=_mean(even[rank]) if comparable else None,
            flagged=rank in flagged,
        )
        for rank, reports in sorted(now.items())
    ]
    rows = estimated(rows) if estimates else rows
    return Lanes(
        rows=_shown(job, rows),
        estimated=estimates,
        roster=spec.workers,
        reporting=len(now),
        iterations=len({row.iteration for reports in now.values() for row in reports}),
        adaptive=not isinstance(registry.policy_type("batching", spec.synchronization.batching), Unchanging),
        over=job.is_over,
        failed=job.state == JobState.FAILED,
        hangs=Flag.objects.filter(job=job, kind=hangs.HANG, closed_at=None).exists(),
        decided=_decided(job),
        run_s=job.worker_seconds / spec.workers * spec.global_batch / job.samples if job.samples else None,
    )


def _decided(job: Job) -> Decided | None:
    """The latest decision about shares that applies to the drawn iterations."""
    rows = Decision.objects.filter(job=job, kind="set-shares", iteration__lt=max(1, job.iteration))
    row = rows.order_by("-incarnation", "-sequence").first()
    if row is None or row.iteration is None:
        return None
    return Decided(incarnation=row.incarnation, sequence=row.sequence, iteration=row.iteration, reason=row.reason)


def _recent(job: Job, window: int) -> list[_Row]:
    """The last iterations that all workers of the roster have reported."""
    return _rows(job, job.iteration - window, max(1, job.iteration))


def _last_roster(rows: Sequence[_Row]) -> list[_Row]:
    """Only reports of the last generation's workers."""
    last = max((row.generation for row in rows), default=0)
    return [row for row in rows if row.generation == last]


def _even_shares(total: int, ranks: Sequence[int]) -> dict[int, int]:
    """Equal shares; the remainder goes to the first ranks."""
    share, rest = divmod(total, max(1, len(ranks)))
    return {rank: share + (place < rest) for place, rank in enumerate(ranks)}


def _even(job: Job, spec: JobSpec, window: int, warm_up: int) -> list[_Row]:
    """Early iterations in which all shares were still equal."""
    rows = _rows(job, warm_up, warm_up + window)
    uneven = {row.iteration for row in rows if row.samples != spec.batch_size}
    return [row for row in rows if row.iteration not in uneven]


def _rows(job: Job, first: int, last: int) -> list[_Row]:
    names = _Row._fields[1:]
    measured = [name for name in names if name != "iteration"]
    found = [
        _Row(rank, *values)
        for rank, columns in History(job).columns(measured, first=first, last=last).items()
        for values in zip(*(columns[name].tolist() for name in names), strict=True)
    ]
    return sorted(found, key=lambda row: (row.iteration, row.rank))[:MAX_ROWS]


def _by_rank(rows: Iterable[_Row]) -> dict[int, list[_Row]]:
    ranks: dict[int, list[_Row]] = defaultdict(list)
    for row in rows:
        ranks[row.rank].append(row)
    return ranks


def _mean(rows: Sequence[_Row]) -> Phases:
    count = len(rows)
    return Phases(
        data_s=sum(row.data_s for row in rows) / count,
        compute_s=sum(row.compute_s for row in rows) / count,
        communication_s=sum(row.push_s + row.pull_s for row in rows) / count,
        waiting_s=sum(row.waiting_s for row in rows) / count,
        coordination_s=sum(row.coordination_s for row in rows) / count,
    )


def machines(job: Job) -> dict[int, str]:
    """The machine of each rank's latest process."""
    rows = Process.objects.filter(ON_MACHINES, job=job, role="worker").order_by("started_at", "id")
    names = rows.values_list("index", "agent__name", "machine__name")[:MAX_ROWS]
    return {rank: name or removed or "" for rank, name, removed in names}


def ranks(job: Job) -> list[tuple[int, str]]:
    """Every requested rank, with its machine if it has one."""
    where = machines(job)
    return [(rank, where.get(rank, "")) for rank in range(stored_spec(job).workers)]


def _shown(job: Job, rows: list[Lane]) -> tuple[Lane, ...]:
    """Lanes by rank, similar ones merged; of many lanes, stable selections of those that wait least and most."""
    if len(rows) <= FEW_LANES:
        return tuple(rows)
    alike = merged(rows)
    if len(alike) <= MAX_LANES:
        return tuple(alike)
    key, waits = f"lanes-shown-{job.pk}", {lane.rank: lane.now.waiting_s for lane in rows}
    pacing, held_up = cache.get(key) or ([], [])
    pacing = keep_rows(pacing, waits, MAX_LANES // 2)
    others = {rank: -waited for rank, waited in waits.items() if rank not in pacing}
    held_up = keep_rows(held_up, others, MAX_LANES // 2)
    cache.set(key, (pacing, held_up), REMEMBERED_S)
    return tuple(lane for lane in rows if lane.rank in {*pacing, *held_up})


def steady_verdict(job: Job, drawn: Lanes, now_s: float) -> Verdict:
    """The debounced verdict, the same for all viewers of the job."""
    found_verdict, key = verdict(drawn), f"verdict-{job.pk}"
    if job.is_over or found_verdict.tone in {"calm", "bad"}:
        cache.delete(key)
        return found_verdict
    before: Shown[Verdict] | None = cache.get(key)
    shown = hold(before, (found_verdict.tone, found_verdict.about), found_verdict, now_s)
    cache.set(key, shown, REMEMBERED_S)
    return shown.value
