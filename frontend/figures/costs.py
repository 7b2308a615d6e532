"""Ranks the largest current losses of worker time, as text. Pure.

A cost is measured in workers: four workers that wait half of the time cost two. This makes jobs of different sizes
comparable.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

SHOWN: Final = 3
NOTICED: Final = 0.05
"""Losses below this fraction of a job's time are within noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPace:
    """Waiting of a running job over its last iterations."""

    job: int
    name: str
    workers: int
    """Number of participating workers."""
    waiting: float
    coordination: float
    """As shares of all workers' time."""
    slowest: int
    """The rank with the longest busy time."""
    machine: str = ""
    machine_id: int | None = None
    hangs: bool = False
    """Whether its current iteration hangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """A machine that is offline while jobs wait for slots."""

    machine_id: int
    name: str
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One of the largest costs."""

    kind: str
    """waiting, coordination, hang or offline."""
    workers: float
    of: int
    """Lost workers, of this many."""
    headline: str
    """What is lost; the job or machine is shown separately, with a link."""
    job: int | None = None
    job_name: str = ""
    machine_id: int | None = None
    machine: str = ""
    rank: int | None = None

    @property
    def share(self) -> float:
        """The lost part."""
        return self.workers / self.of if self.of else 0.0


def costs(paces: Sequence[JobPace], absent: Sequence[Absent]) -> list[Cost]:
    """The largest costs, largest first."""
    found = [cost for pace in paces for cost in _of_job(pace)] + [_of_machine(each) for each in absent]
    return sorted(found, key=lambda cost: (-cost.workers, cost.job or 0, cost.machine_id or 0))[:SHOWN]


def _of_job(pace: JobPace) -> list[Cost]:
    about: dict[str, Any] = {"job": pace.job, "job_name": pace.name, "of": pace.workers}
    if pace.hangs:
        return [Cost(kind="hang", workers=float(pace.workers), headline="An iteration hangs", **about)]
    found = []
    if pace.waiting >= NOTICED and pace.workers > 1:
        found.append(
            Cost(
                kind="waiting",
                workers=pace.waiting * pace.workers,
                headline=f"w{pace.slowest} holds the others back: {pace.waiting:.0%} of the workers' time is waiting",
                rank=pace.slowest,
                machine=pace.machine,
                machine_id=pace.machine_id,
                **about,
            )
        )
    if pace.coordination >= NOTICED:
        found.append(
            Cost(
                kind="coordination",
                workers=pace.coordination * pace.workers,
                headline=f"Workers wait for orders from the control plane {pace.coordination:.0%} of their time",
                **about,
            )
        )
    return found


def _of_machine(absent: Absent) -> Cost:
    return Cost(
        kind="offline",
        workers=float(absent.slots),
        of=absent.slots,
        headline="Offline while jobs wait for slots",
        machine_id=absent.machine_id,
        machine=absent.name,
    )
