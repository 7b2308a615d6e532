"""Reads and summarizes the logs of one run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from benchmarks.peers.machine import SCORES

GLOBAL_BATCH: Final = 256
"""Samples of an iteration of all machines; other steps are converted to this size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One training pass of a machine: real work and pause."""

    begin: float
    due: float
    """When the emulated machine is done."""
    end: float
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    """The logs that a run has written so far."""

    passes: Mapping[int, Sequence[Pass]]
    """Passes of each machine."""
    scores: Sequence[tuple[float, float]]
    """Time and accuracy."""

    @property
    def begun(self) -> float | None:
        """When the first pass began."""
        return min((rows[0].begin for rows in self.passes.values() if rows), default=None)

    def reached(self, target: float) -> float | None:
        """When the linearly interpolated accuracy first reaches the target; None if it does not."""
        line = [(self.begun or 0.0, 0.0), *self.scores]
        for (before, low), (after, high) in pairwise(line):
            if high >= target:
                return before + (after - before) * (target - low) / (high - low)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One run. Seconds are from the first training pass on, but for ``start_s``, which is until then."""

    start_s: float
    to_target_s: float
    iteration_s: float
    """Mean time per 256 samples of all machines."""
    late_iteration_s: float
    """The mean of the second half of that time, after adaptation."""
    iterations: float
    """Iterations to the target, of that many samples."""
    waiting: float
    """Fraction of the machines' time outside training passes: sums, servers, evaluation, the library's own work."""
    late: float
    """Fraction of the passes' time by which this computer was slower than the emulated machines."""
    memory_mb: float = 0.0


class NotReached(Exception):
    """The target was not reached, or nothing was trained."""


def read(folder: Path) -> Logs:
    """Read the logs of a run, which may still be running: an incomplete line is ignored."""
    passes: dict[int, list[Pass]] = {}
    for path in sorted(folder.glob("machine-*.log")):
        rows = (Pass(begin=b, due=d, end=e, samples=int(n)) for b, d, e, n in _numbers(path, 4))
        passes[int(path.stem.partition("-")[2])] = sorted(rows, key=lambda row: row.begin)
    scores = folder / SCORES
    return Logs(passes=passes, scores=[(at, found) for at, found in _numbers(scores, 2)] if scores.exists() else [])


def figures_of(logs: Logs, *, target: float, launched: float, memory_mb: float = 0.0) -> Figures:
    """Figures of the time up to the target.

    Raises:
        NotReached: if it was not reached; names the best accuracy.
    """
    reached, begun = logs.reached(target), logs.begun
    if reached is None or begun is None:
        best = max((found for _, found in logs.scores), default=0.0)
        raise NotReached(f"accuracy {best:.3f} at best" if begun is not None else "no machine trained")
    rows = [row for each in logs.passes.values() for row in each if row.begin < reached]
    busy_s, samples = _within(rows, begun, reached)
    wall_s, half = reached - begun, (begun + reached) / 2
    return Figures(
        start_s=begun - launched,
        to_target_s=wall_s,
        iterations=samples / GLOBAL_BATCH,
        iteration_s=wall_s * GLOBAL_BATCH / samples,
        late_iteration_s=(reached - half) * GLOBAL_BATCH / _within(rows, half, reached)[1],
        waiting=1.0 - busy_s / (len(logs.passes) * wall_s),
        late=_sum(max(0.0, row.end - row.due) for row in rows) / _sum(row.end - row.begin for row in rows),
        memory_mb=memory_mb,
    )


def _within(rows: Iterable[Pass], since: float, until: float) -> tuple[float, float]:
    """Seconds and samples of passes in that span; of a pass across its bounds, the part inside."""
    seconds = samples = 0.0
    for row in rows:
        inside = max(0.0, min(until, row.end) - max(since, row.begin))
        seconds += inside
        samples += row.samples * inside / (row.end - row.begin)
    return seconds, samples


def _sum(values: Iterable[float]) -> float:
    return float(sum(values))


def _numbers(path: Path, columns: int) -> list[list[float]]:
    lines = path.read_text().splitlines(keepends=True)
    whole = [line.split() for line in lines if line.endswith("\n")]
    return [[float(word) for word in words] for words in whole if len(words) == columns]
