"""Stores a simulated run like a job: its log makes the same rows, so the same figures, tables and pages show it.

The job's row names its simulation. It has no raw events, since it can be simulated again, and no report rows: reports
are folded immediately. Virtual times are shifted so that the run ends when it is stored.
"""

import math
from array import array
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

import numpy as np
from django.db import transaction
from msgspec.structs import replace

from controlplane.core.commands import CARRIERS, AnyCommand, MoveProcess, TrainPredictor
from controlplane.core.events import Entry, WorkerMessageReceived
from controlplane.core.states import JobState
from controlplane.jobs.models import Job
from controlplane.jobs.projections import Answer, Progress, apply_answers, apply_progress, end_lost_job
from controlplane.protocol.measurements import values_of
from controlplane.protocol.messages import Evaluation, IterationReport, WorkerHello
from controlplane.protocol.spec import JobSpec, spec_document
from controlplane.telemetry.columns import COUNTS, INTEGERS, MEASURES, Rows
from controlplane.telemetry.folding import BLOCKS, lay_over_stored
from controlplane.telemetry.models import Simulation
from controlplane.telemetry.projections import Reported, add_report, record_evaluations

COLUMNS: Final = ("rank", "iteration", *INTEGERS, *MEASURES)
BATCH: Final = 400
"""Commands per transaction, as in ingest."""
UNFINISHED: Final = "the job was not over at the scenario's time limit"


class Series:
    """Collects the parts of a run's log that become rows."""

    def __init__(self, *, has_losses: bool) -> None:
        """Without ``has_losses``, training was not computed, and losses in reports are ignored."""
        self._has_losses = has_losses
        self._reports = array("d")
        """COLUMNS, report after report."""
        self._exchanges: dict[tuple[int, int], tuple[float, float]] = {}
        """The last exchange of each worker with each server: push and pull seconds."""
        self._commands: list[AnyCommand] = []
        self._scores: list[Reported] = []
        self._progress = Progress()
        self._last_ms = 0

    def add(self, entry: Entry, commands: list[AnyCommand]) -> None:
        """Add an entry and the engine's commands for it."""
        self._last_ms = _ms(entry.id)
        event = entry.event
        if isinstance(event, WorkerMessageReceived):
            if isinstance(event.message, IterationReport):
                self._report(event, event.message)
            elif isinstance(event.message, WorkerHello) and self._has_losses:
                self._progress.training_samples = event.message.sample_count
            elif isinstance(event.message, Evaluation):
                self._scores.append((entry, event, event.message))
        self._commands += [command for command in commands if not isinstance(command, CARRIERS)]

    def store(self, job: Job, now: datetime) -> None:
        """Write everything, in short transactions, as the history of ``job``, which ended at ``now``."""
        later_ms = int(now.timestamp() * 1000) - self._last_ms
        parts = list(self._rows(later_ms).by_block())
        for start in range(0, len(parts), BLOCKS):
            with transaction.atomic():
                lay_over_stored(job.pk, dict(parts[start : start + BLOCKS]))
        for start in range(0, len(self._commands), BATCH):
            commands = [_stored(command, later_ms) for command in self._commands[start : start + BATCH]]
            with transaction.atomic():
                apply_answers(job.pk, [Answer(incarnation=0, sequence=start, commands=commands)])
        for (_, server), exchange in sorted(self._exchanges.items()):
            self._progress.exchanges.setdefault(server, []).append(exchange)
        with transaction.atomic():
            record_evaluations(job.pk, list(_later(self._scores, later_ms)), self._progress)
            apply_progress(job.pk, self._progress)

    def _report(self, event: WorkerMessageReceived, report: IterationReport) -> None:
        for each in report.exchanges:
            if not each.is_probe:
                self._exchanges[event.rank, each.server] = (each.push_s, each.pull_s)
        report = replace(report, exchanges=[], loss=report.loss if self._has_losses else math.nan)
        add_report(self._progress, event, report)
        measured = values_of(report, (*COUNTS, *MEASURES))
        self._reports.extend((event.rank, report.iteration, report.generation, self._last_ms, *measured))

    def _rows(self, later_ms: int) -> Rows:
        table = np.frombuffer(self._reports, np.float64).reshape(-1, len(COLUMNS)).T
        columns = {
            name: values.astype(np.int64) if name in ("rank", "iteration", *INTEGERS) else values
            for name, values in zip(COLUMNS, table, strict=True)
        }
        columns["at_ms"] = columns["at_ms"] + later_ms
        return Rows(rank=columns.pop("rank"), iteration=columns.pop("iteration"), columns=columns)


def run_store(simulation: Simulation, policy: str, spec: JobSpec, series: Series, now: datetime) -> Job:
    """Store a finished job with all that ``series`` collected, for one policy of a simulation.

    If this fails, no rows remain.
    """
    job = Job.objects.create(
        name=f"{simulation.scenario} {policy}"[:100],
        spec=spec_document(spec),
        submitted_by=simulation.submitted_by,
        team_id=simulation.team_id,
        state=JobState.FINISHING,
        simulation=simulation,
        policy=policy,
    )
    try:
        series.store(job, now)
        end_lost_job(job.pk, JobState.CANCELLED, UNFINISHED, now)
    except BaseException:
        job.delete()
        raise
    return job


def _stored(command: AnyCommand, later_ms: int) -> AnyCommand:
    """The command as stored: with shifted time, without machines, and without data that only the engine needs."""
    command = replace(command, cause=_moved(command.cause, later_ms))
    if isinstance(command, MoveProcess):
        return replace(command, agent=0, restart=None)
    return replace(command, data=b"") if isinstance(command, TrainPredictor) else command


def _later(reported: Sequence[Reported], later_ms: int) -> Iterator[Reported]:
    for entry, event, score in reported:
        yield replace(entry, id=_moved(entry.id, later_ms)), event, score


def _moved(stream_id: str, later_ms: int) -> str:
    _, _, within = stream_id.partition("-")
    return f"{_ms(stream_id) + later_ms}-{within}"


def _ms(stream_id: str) -> int:
    return int(stream_id.partition("-")[0])
