"""Maps a job's chart axes (time, iterations, samples, ...) onto each other, by the end of each iteration."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from controlplane.jobs.models import Job
from controlplane.jobs.stored_specs import stored_spec
from frontend.figures.rows import Mark
from frontend.queries.figures import MAX_WINDOWS
from frontend.queries.history import History

POINTS: Final = 200
"""Maximum number of points sent to a page, which interpolates between them."""


class JobClock:
    """The end of each iteration, by the reports of the worker with the most reports."""

    def __init__(self, job: Job) -> None:
        spec = stored_spec(job)
        history = History(job)
        found = history.windows(("at_ms",), history.width(MAX_WINDOWS))
        longest = max(found.values(), key=lambda each: len(each.first), default=None)
        started = job.started_at.timestamp() if job.started_at else 0.0
        none = np.zeros(1)
        self._iteration = longest.first.astype(np.float64) if longest is not None and len(longest.first) else none
        ended = longest.of("at_ms", "max") / 1000 - started if longest is not None and len(longest.first) else none
        self._elapsed = np.maximum.accumulate(ended)
        self._batch, self._workers = spec.global_batch, spec.workers
        self._epoch = job.training_samples

    def mark(self, elapsed_s: float, iteration: int | None, words: str) -> Mark:
        """A mark at a time, interpolated within its iteration."""
        at = float(iteration) if iteration is not None else float(np.interp(elapsed_s, self._elapsed, self._iteration))
        elapsed_s = max(0.0, round(elapsed_s, 3))
        samples = round(at * self._batch)
        return Mark(
            elapsed_s=elapsed_s,
            iteration=round(at, 2),
            samples=samples,
            updates=round(at * self._workers),
            epochs=round(samples / self._epoch, 4) if self._epoch else None,
            words=words,
        )

    def elapsed_at(self, iteration: float) -> float:
        """Seconds since the job's start at an iteration."""
        return float(np.interp(iteration, self._iteration, self._elapsed))

    def axes(self) -> dict[str, list[float]]:
        """The same points in time on every axis, at most ``POINTS``."""
        kept = np.unique(np.linspace(0, len(self._iteration) - 1, POINTS).round().astype(np.int64))
        at = self._iteration[kept]
        axes: dict[str, NDArray[np.float64]] = {
            "iteration": at,
            "time": self._elapsed[kept],
            "samples": at * self._batch,
            "update": at * self._workers,
        }
        epochs = {"epoch": at * self._batch / self._epoch} if self._epoch else {}
        return {name: values.round(4).tolist() for name, values in (axes | epochs).items()}
