"""The largest current costs, as text: paid workers that wait. Pure.

A cost is in workers: four workers that wait half of their time cost two. That makes jobs of different sizes comparable.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

SHOWN: Final = 3
NOTICED: Final = 0.05
"""A part of a job's time below this is rounding and noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPace:
    """A running job over its last iterations."""

    job: int
    name: str
    workers: int
    """How many took part."""
    waiting: float
    coordination: float
    """As shares of all workers' time."""
    slowest: int
    """The rank with the longest own time."""
    machine: str = ""
    machine_id: int | None = None
    hangs: bool = False
    """Whether an iteration does not end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """A machine that is offline while jobs wait for slots."""

    machine_id: int
    name: str
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One of the greatest costs."""

    kind: str
    """waiting, coordination, hang or offline."""
    workers: float
    of: int
    """Workers that are lost, of this many."""
    headline: str
    """Its subject; the job or machine is named separately, with a link."""
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
    """The greatest ones, the greatest first."""
    found = [cost for pace in paces for cost in _of_job(pace)] + [_of_machine(each) for each in absent]
    return sorted(found, key=lambda cost: (-cost.workers, cost.job or 0, cost.machine_id or 0))[:SHOWN]


def _of_job(pace: JobPace) -> list[Cost]:
    about: dict[str, Any] = {"job": pace.job, "job_name": pace.name, "of": pace.workers}
    if pace.hangs:
        return [Cost(kind="hang", workers=float(pace.workers), headline="An iteration does not end", **about)]
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
                headline=f"Workers wait for orders of the control plane {pace.coordination:.0%} of their time",
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
