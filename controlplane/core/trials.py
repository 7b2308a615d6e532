"""What changes of placement turn out to be worth, and what they cost: measured beside what was predicted."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, median
from typing import Final

from controlplane.core.choices import Transfer
from controlplane.core.commands import MeasurePlacement
from controlplane.core.handling import Handling
from controlplane.core.records import PlacementTrial, Worker
from controlplane.core.state import Job
from controlplane.protocol.messages import IterationReport

ITERATIONS: Final = 5
"""After so many under a new placement its effect is known, or before the next change; the first is not counted."""


def begin(handling: Handling, version: int, predicted_s: float | None) -> None:
    """A change of placement is ordered: one that is still being measured ends with what was seen of it."""
    job = handling.job
    if job.placement.trial is not None and job.placement.trial.seconds:
        _conclude(handling, job.placement.trial)
    job.placement.trial = PlacementTrial(version=version, before_s=job.placement.exchange_s, predicted_s=predicted_s)


def committed(job: Job, took_s: float) -> None:
    """It holds, so many seconds after its order."""
    if job.placement.trial is not None:
        job.placement.trial.committed, job.placement.trial.took_s = job.round.completed, took_s


def note_pause(job: Job, worker: Worker, report: IterationReport) -> None:
    """Blocks on their way have held ``worker`` up."""
    if job.placement.trial is not None:
        job.placement.trial.paused_s[worker.index] = (
            job.placement.trial.paused_s.get(worker.index, 0.0) + report.moving_s
        )


def measure(handling: Handling, transfers: Sequence[Transfer]) -> None:
    """One iteration's exchanges: of each server the median over the workers, of these the longest."""
    job = handling.job
    seconds: dict[int, list[float]] = defaultdict(list)
    for seen in transfers:
        if not seen.is_probe:
            seconds[seen.server].append(seen.seconds)
    if not seconds:
        return
    job.placement.exchange_s = max(median(each) for each in seconds.values())
    trial = job.placement.trial
    if trial is None or trial.committed is None or job.round.completed <= trial.committed + 1:
        return
    trial.seconds.append(job.placement.exchange_s)
    if len(trial.seconds) >= ITERATIONS:
        _conclude(handling, trial)


def _conclude(handling: Handling, trial: PlacementTrial) -> None:
    handling.job.placement.trial = None
    after_s, paused_s = fmean(trial.seconds), max(trial.paused_s.values(), default=0.0)
    told = f"an exchange takes {after_s * 1000:.3g} ms"
    if trial.before_s is not None:
        told += f" instead of {trial.before_s * 1000:.3g} ms"
    if trial.predicted_s is not None:
        told += f" (predicted: {trial.predicted_s * 1000:.3g} ms)"
    handling.give(
        MeasurePlacement,
        f"{told}; the change held workers up for {paused_s * 1000:.3g} ms at most",
        version=trial.version,
        before_s=trial.before_s,
        predicted_s=trial.predicted_s,
        after_s=after_s,
        paused_s=paused_s,
        took_s=trial.took_s,
    )
