"""Reads energy and cost of a job's workers: measured, otherwise from the power in machine labels or the spec."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from django.conf import settings
from msgspec.structs import replace

from controlplane.fleet.removed_machines import Machine
from controlplane.jobs.machines import ON_MACHINES, machine_of
from controlplane.jobs.models import Job, Process
from controlplane.jobs.stored_specs import stored_spec
from controlplane.protocol.energy import Draw, draw_of, labelled_power
from controlplane.telemetry.history import Windows
from controlplane.telemetry.metrics import BUSY, ITERATION
from controlplane.telemetry.stored_reports import known_measurements
from frontend import formats
from frontend.queries.figures import MAX_SUMMED
from frontend.queries.history import History
from frontend.queries.staleness import MAX_RANKS

MILLION: Final = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyUsed:
    """Energy of one worker, or of all workers, so far."""

    rank: int = -1
    """-1: all workers."""
    machine: str = ""
    samples: int
    seconds: float
    joules: float
    amount: float
    """The cost, if prices are set."""
    measured: float
    """The fraction of iterations with measured energy."""

    @property
    def joules_per_sample(self) -> float | None:
        """None: no samples were processed."""
        return self.joules / self.samples if self.samples else None

    @property
    def samples_per_second(self) -> float | None:
        """Throughput including waiting."""
        return self.samples / self.seconds if self.seconds else None

    @property
    def watts(self) -> float | None:
        """Mean power including waiting."""
        return self.joules / self.seconds if self.seconds else None

    @property
    def cost_per_million(self) -> float | None:
        """Cost per million samples; None without prices."""
        return MILLION * self.amount / self.samples if self.samples and self.amount else None

    @property
    def cost(self) -> str:
        """The same as text."""
        found = self.cost_per_million
        return "" if found is None else formats.money(found, unit())

    @property
    def source(self) -> str:
        """The source of the energy values, as text."""
        if self.measured >= 1.0:
            return "measured"
        measured = f"measured in {self.measured:.0%} of iterations, otherwise configured"
        return measured if self.measured else "configured power"


def unit() -> str:
    """The currency of the installation's worker-hour."""
    return settings.WORKER_HOUR[1] if settings.WORKER_HOUR is not None else ""


def energy(job: Job, ranks: Collection[int] = ()) -> list[EnergyUsed]:
    """Energy so far, by rank; only the first ``MAX_RANKS``. Empty before the first report."""
    known = "joules" in known_measurements(job.pk)
    asked = sorted(ranks) if ranks else list(range(min(stored_spec(job).workers, MAX_RANKS)))
    history = History(job)
    names = ("at_ms", "samples", *ITERATION, *(["joules"] if known else []))
    windows = history.windows(names, history.width(MAX_SUMMED, max(1, len(asked))), asked)
    where, found = _machines(job), []
    for rank in sorted(windows):
        machine = where.get(rank)
        found.append(_used(rank, machine, windows[rank], _draw(job, rank, machine), known=known))
    return found


def total(used: Collection[EnergyUsed]) -> EnergyUsed | None:
    """The sum over workers."""
    if not used:
        return None
    seconds = sum(each.seconds for each in used)
    return EnergyUsed(
        samples=sum(each.samples for each in used),
        seconds=seconds,
        joules=sum(each.joules for each in used),
        amount=sum(each.amount for each in used),
        measured=sum(each.measured * each.seconds for each in used) / seconds if seconds else 0.0,
    )


def _used(rank: int, machine: Machine | None, windows: Windows, draw: Draw, *, known: bool) -> EnergyUsed:
    sums = {name: float(windows.of(name, "sum").sum()) for name in ("samples", *ITERATION)}
    seconds, busy_s = sum(sums[name] for name in ITERATION), sum(sums[name] for name in BUSY)
    counted = float(windows.of("joules", "count").sum()) if known else 0.0
    reports = float(windows.of("at_ms", "count").sum())
    measured = min(1.0, counted / reports) if reports else 0.0
    joules = draw.joules(busy_s, seconds) * (1.0 - measured)
    if counted:
        joules += float(windows.of("joules", "sum").sum())
    return EnergyUsed(
        rank=rank,
        machine=machine.name if machine is not None else "",
        samples=int(sums["samples"]),
        seconds=seconds,
        joules=joules,
        amount=draw.cost(joules, seconds),
        measured=measured,
    )


def _draw(job: Job, rank: int, machine: Machine | None) -> Draw:
    power = labelled_power(machine.placed_by) if machine is not None else None
    energy = stored_spec(job).energy
    draw = draw_of(energy, rank, power)
    if energy.hour is None and draw.hour == 0.0 and settings.WORKER_HOUR is not None:  # submitted before there was one
        return replace(draw, hour=settings.WORKER_HOUR[0])
    return draw


def _machines(job: Job) -> dict[int, Machine]:
    """The machine of each rank's latest process."""
    rows = Process.objects.filter(ON_MACHINES, job=job, role="worker", index__lt=MAX_RANKS).select_related("agent")
    return {row.index: machine for row in rows.order_by("started_at", "id") if (machine := machine_of(row)) is not None}
