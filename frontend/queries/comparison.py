"""Reads the comparison of several jobs: data of figures, the table of results, and differences of specs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controlplane.jobs.models import Job
from controlplane.telemetry.metrics import ITERATION
from frontend import formats
from frontend.figures.rows import Compared, View
from frontend.queries.cache import of_job
from frontend.queries.energy import energy, total, unit
from frontend.queries.figures import MAX_SUMMED, convergence
from frontend.queries.history import History

LEAST, MOST = 2, 6
"""Minimum and maximum number of jobs of a comparison."""

WARM_UP = 2
"""Warm-up iterations of a job that are excluded from iteration times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One result of one job, as text, and its difference from the baseline."""

    text: str
    delta: str
    best: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One result of every job, in the jobs' order."""

    title: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A spec field in which the jobs differ."""

    field: str
    values: tuple[str, ...]


def compared(jobs: Sequence[Job], view: View) -> tuple[Compared, ...]:
    """The data of a comparison's figures."""
    return tuple(
        Compared(job=job.pk, label=f"#{job.pk} {job.name}", learned=convergence(job, view), iteration_s=lengths(job))
        for job in jobs
    )


def lengths(job: Job) -> NDArray[np.float64]:
    """A job's iteration times in seconds, as means over its workers, without warm-up."""
    history = History(job)
    found = list(history.windows(ITERATION, history.width(MAX_SUMMED)).values())
    if not found:
        return np.empty(0)
    first, place = np.unique(np.concatenate([each.first for each in found]), return_inverse=True)
    means = np.concatenate([each.mean(*ITERATION) for each in found])
    summed = np.bincount(place, weights=means) / np.bincount(place)
    kept: NDArray[np.float64] = summed[(first >= WARM_UP) & np.isfinite(summed)]
    return kept


def results(jobs: Sequence[Job], sides: Sequence[Compared], baseline: int, target: float | None) -> list[Row]:
    """The table of results of each job, with the difference from the job ``baseline``, and the best one marked.

    ``sides`` is the result of ``compared`` for the same jobs.
    """
    base = next(at for at, job in enumerate(jobs) if job.pk == baseline)
    return [
        _row(line, [line.value(job, side) for job, side in zip(jobs, sides, strict=True)], base)
        for line in _lines(target)
    ]


def common_target(jobs: Sequence[Compared]) -> float | None:
    """The highest accuracy that every job reached, at which times can be compared."""
    best = [float(np.nanmax(job.learned.scored_accuracy, initial=0.0)) for job in jobs]
    return min(best) if best and min(best) > 0 else None


def differences(jobs: Sequence[Job]) -> list[Difference]:
    """The spec fields in which the jobs differ, by name."""
    flat = [dict(_flat(job.spec)) for job in jobs]
    fields = sorted(_without_parents(set().union(*flat)))
    values = {field: tuple(_text(each.get(field)) for each in flat) for field in fields}
    return [Difference(field=field, values=found) for field, found in values.items() if len(set(found)) > 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    title: str
    value: Callable[[Job, Compared], float | None]
    format: Callable[[float | None], str]
    lower_is_better: bool


def _lines(target: float | None) -> Iterator[_Line]:
    yield _Line(title="Iteration time, mean", value=_mean, format=formats.milliseconds, lower_is_better=True)
    yield _Line(title="Iteration time, 95th percentile", value=_slow, format=formats.milliseconds, lower_is_better=True)
    for title, value in (("Time lost to waiting", _waiting), ("Time lost to coordination", _coordination)):
        yield _Line(title=title, value=value, format=lambda v: formats.percent(v, 1), lower_is_better=True)
    yield _Line(title="Samples per second", value=_throughput, format=formats.significant, lower_is_better=False)
    yield _Line(title="Joules per sample", value=_joules_per_sample, format=formats.significant, lower_is_better=True)
    yield _Line(title="Cost per million samples", value=_cost, format=_money, lower_is_better=True)
    yield _Line(title="Best accuracy", value=_best, format=lambda v: formats.percent(v, 1), lower_is_better=False)
    if target is None:
        return
    at = formats.percent(target, 1)
    for title, column, format in (
        (f"Time to {at} accuracy", "scored_elapsed_s", _seconds),
        (f"Iterations to {at}", "scored_iteration", formats.significant),
        (f"Samples to {at}", "scored_samples", formats.significant),
    ):
        yield _Line(title=title, value=_reaches(column, target), format=format, lower_is_better=True)


def _row(line: _Line, values: Sequence[float | None], base: int) -> Row:
    known = [value for value in values if value is not None]
    best = (min if line.lower_is_better else max)(known, default=None)
    distinct = len(set(known)) > 1
    cells = tuple(
        Cell(text=line.format(value), delta=_delta(value, values[base], at == base), best=distinct and value == best)
        for at, value in enumerate(values)
    )
    return Row(title=line.title, cells=cells)


def _delta(value: float | None, base: float | None, is_base: bool) -> str:
    if is_base:
        return "baseline"
    if value is None or not base:
        return ""
    return formats.signed(f"{(value / base - 1) * 100:+.0f}%")


def _mean(job: Job, side: Compared) -> float | None:
    return float(side.iteration_s.mean()) if len(side.iteration_s) else None


def _slow(job: Job, side: Compared) -> float | None:
    return float(np.quantile(side.iteration_s, 0.95)) if len(side.iteration_s) else None


def _waiting(job: Job, side: Compared) -> float | None:
    return job.waiting_share if job.busy_s else None


def _coordination(job: Job, side: Compared) -> float | None:
    return job.coordination_share if job.busy_s else None


def _throughput(job: Job, side: Compared) -> float | None:
    elapsed = side.learned.elapsed_s
    return job.samples / float(elapsed[-1]) if len(elapsed) and elapsed[-1] > 0 else None


def _joules_per_sample(job: Job, side: Compared) -> float | None:
    used = total(of_job("energy", job, energy))
    return used.joules_per_sample if used is not None else None


def _cost(job: Job, side: Compared) -> float | None:
    used = total(of_job("energy", job, energy))
    return used.cost_per_million if used is not None else None


def _money(amount: float | None) -> str:
    return formats.NONE if amount is None else formats.money(amount, unit())


def _best(job: Job, side: Compared) -> float | None:
    accuracy = side.learned.scored_accuracy
    return float(np.nanmax(accuracy)) if np.isfinite(accuracy).any() else None


def _reaches(column: str, target: float) -> Callable[[Job, Compared], float | None]:
    def first(job: Job, side: Compared) -> float | None:
        there = np.flatnonzero(side.learned.scored_accuracy >= target)
        return float(getattr(side.learned, column)[there[0]]) if len(there) else None

    return first


def _seconds(value: float | None) -> str:
    return formats.NONE if value is None else f"{formats.significant(value)} s"


def _flat(document: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def _without_parents(fields: set[str]) -> set[str]:
    """Drop fields that are empty in one job and have subfields in another: the subfields show the difference."""
    parents = {field[:at] for field in fields for at, letter in enumerate(field) if letter == "."}
    return fields - parents


def _text(value: Any) -> str:
    return formats.NONE if value is None else str(value)
