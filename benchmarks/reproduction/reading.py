"""Reads the record of a job on real processes into the types of simulated runs."""

import statistics
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from controlplane.protocol.spec import JobSpec
from controlplane.simulator.numerics.settings import Target
from controlplane.simulator.outcome import Outcome
from controlplane.simulator.reproduction.claims import Played
from controlplane.simulator.reproduction.runs import TAIL
from controlplane.simulator.scenario import Scenario

PARTS: Final = ("compute_s", "push_s", "pull_s", "waiting_s", "coordination_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One iteration of one worker."""

    at_s: float
    """When it reached the log."""
    rank: int
    iteration: int
    samples: int
    parts: Mapping[str, float]
    moving_s: float

    @property
    def total_s(self) -> float:
        """The whole iteration, by the worker's clock."""
        return sum(self.parts.values())

    @property
    def lead_s(self) -> float:
        """From its beginning until it had its parameters."""
        return self.total_s - self.parts["compute_s"] - self.parts["push_s"]

    @property
    def pulled_s(self) -> float:
        """About when it had its parameters."""
        return self.at_s - self.parts["push_s"] - self.parts["compute_s"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Everything that is read of a job."""

    reports: Sequence[Report]
    """In the order of the log."""
    scores: Sequence[tuple[int, float | None, float | None]]
    """Iteration of the worker that evaluates, loss, accuracy."""
    decisions: Sequence[Mapping[str, Any]]
    servers: int
    """Those that there were at any time."""
    block_bytes: Mapping[int, int]


def report_of(row: Mapping[str, Any]) -> Report:
    """From a row of the API's log."""
    event = row["event"]
    message = event["message"]
    parts = {name: float(message[name]) for name in PARTS}
    parts["compute_s"] += float(message.get("data_s", 0.0))
    return Report(
        at_s=_seconds(row),
        rank=event["rank"],
        iteration=message["iteration"],
        samples=message["samples"],
        parts=parts,
        moving_s=float(message.get("moving_s", 0.0)),
    )


def score_of(row: Mapping[str, Any]) -> tuple[int, float | None, float | None]:
    """From a row of the API's log."""
    message = row["event"]["message"]
    return message["iteration"], message["loss"], message.get("accuracy")


def played_of(scenario: Scenario, policy: str, seed: int, records: Records) -> Played:
    """As the simulator's ``play_run`` gives it. Times are those of the workers' clocks.

    Raises:
        RuntimeError: if the job recorded nothing.
    """
    if not records.reports:
        raise RuntimeError(f"{scenario.name} under {policy}: no worker reported an iteration")
    by_rank: dict[int, list[Report]] = defaultdict(list)
    for report in records.reports:
        by_rank[report.rank].append(report)
    workers = scenario.spec.workers
    spans = _spans(records.reports, workers)
    curve = _curve(records, by_rank, workers)
    seconds = max(sum(report.total_s for report in own) for own in by_rank.values())
    accuracies = [accuracy for _, _, _, accuracy in curve if accuracy is not None]
    return Played(
        outcome=_outcome(scenario, policy, seed, records, by_rank, spans, seconds, curve),
        spans=spans[1:],
        accuracies=accuracies[-TAIL:],
        curve=[(at_s, updates, accuracy) for at_s, updates, _, accuracy in curve],
        losses=[(at_s, updates, loss) for at_s, updates, loss, _ in curve if loss is not None],
        added_servers=max(0, records.servers - scenario.spec.servers),
        work=[_work(by_rank.get(rank, ())) for rank in range(workers)],
        first_shares=[(report.iteration, report.samples) for report in by_rank.get(0, ())],
        exchanges=[
            (row["payload"]["before_s"], row["payload"]["after_s"])
            for row in records.decisions
            if row["kind"] == "measure-placement" and row["payload"]["before_s"] is not None
        ],
        moved_splits=sum(len(row["payload"]["moves"]) for row in records.decisions if row["kind"] == "move-splits"),
        cpu_s=0.0,
    )


Curve = list[tuple[float, int, float | None, float | None]]
"""Time, updates, loss, accuracy."""


def _outcome(
    scenario: Scenario,
    policy: str,
    seed: int,
    records: Records,
    by_rank: Mapping[int, list[Report]],
    spans: list[float],
    seconds: float,
    curve: Curve,
) -> Outcome:
    spec, reports = scenario.spec, records.reports
    total_s = sum(report.total_s for report in reports) or 1.0
    parts = {name: sum(report.parts[name] for report in reports) / total_s for name in PARTS}
    lasted = spans[1 + scenario.warm_up :] or spans
    updates = sum(report.samples > 0 for report in reports)
    missed = [_missed(report, reports) for report in reports]
    reached = _reached(scenario, curve)
    moved = [
        int(block) for row in records.decisions if row["kind"] == "move-blocks" for block in row["payload"]["moves"]
    ]
    _, _, loss, accuracy = curve[-1] if curve else (0.0, 0, None, None)
    return Outcome(
        scenario=scenario.name,
        policy=policy,
        seed=seed,
        state="succeeded",
        why="",
        seconds=seconds,
        iterations=len(spans) or round(len(reports) / spec.workers),
        updates=updates,
        samples=sum(report.samples for report in reports),
        iteration_s=statistics.fmean(lasted) if spans else total_s / len(reports),
        iteration_p95_s=None,
        update_s=seconds / max(1, updates),
        waiting=parts["waiting_s"],
        coordination=parts["coordination_s"],
        compute=parts["compute_s"],
        communication=parts["push_s"] + parts["pull_s"],
        shares=_shares(scenario.policies[policy].batching.name, spec, by_rank),
        progress=[len(by_rank.get(rank, ())) for rank in range(spec.workers)],
        inconsistency=statistics.fmean(missed) / spec.workers,
        moving_s=sum(report.moving_s for report in reports) / spec.workers,
        moved_bytes=sum(records.block_bytes.get(block, 1) for block in moved),
        updates_to_target=reached[1] if reached else None,
        time_to_target_s=reached[0] if reached else None,
        loss=loss,
        accuracy=accuracy,
        events=0,
        happened=0,
    )


def _spans(reports: Sequence[Report], workers: int) -> list[float]:
    """Length of each iteration, where all workers make them in step: the mean of their clocks. Else none."""
    by_iteration: dict[int, list[float]] = defaultdict(list)
    for report in reports:
        by_iteration[report.iteration].append(report.total_s)
    counts = {len({r.iteration for r in reports if r.rank == rank}) for rank in {r.rank for r in reports}}
    if len(counts) > 1 or any(len(lengths) != workers for lengths in by_iteration.values()):
        return []
    return [statistics.fmean(by_iteration[iteration]) for iteration in sorted(by_iteration)]


def _shares(batching: str, spec: JobSpec, by_rank: Mapping[int, list[Report]]) -> list[int]:
    """The last, by rank; a task that was cut short has fewer samples than its share."""
    if batching == "uniform":
        return [spec.usual_share] * spec.workers
    return [by_rank[rank][-1].samples if by_rank.get(rank) else 0 for rank in range(spec.workers)]


def _curve(records: Records, by_rank: Mapping[int, list[Report]], workers: int) -> Curve:
    """Of each evaluation: when its parameters had come, by the clock of its worker, and what it found.

    In step, the parameters of iteration k have k updates of each worker; else as many as were reported by then.
    """
    own = by_rank.get(0, [])
    in_step = bool(_spans(records.reports, workers))
    times = [report.at_s for report in records.reports]
    found: Curve = []
    for iteration, loss, accuracy in records.scores:
        before = [report for report in own if report.iteration < iteration]
        # An iteration begins with the wait for others, and for its parameters.
        lead_s = sum(report.lead_s for report in own if report.iteration == iteration)
        arrived = bisect_right(times, before[-1].at_s + lead_s) if before else 0
        updates = iteration * workers if in_step else arrived
        found.append((sum(report.total_s for report in before) + lead_s, updates, loss, accuracy))
    return found


def _reached(scenario: Scenario, curve: Curve) -> tuple[float, int] | None:
    target = scenario.numerics.target if scenario.numerics is not None else Target()
    for at_s, updates, loss, accuracy in curve:
        hits_loss = target.loss is not None and loss is not None and loss <= target.loss
        if hits_loss or (target.accuracy is not None and accuracy is not None and accuracy >= target.accuracy):
            return at_s, updates
    return None


def _work(reports: Sequence[Report]) -> tuple[int, float]:
    """Samples of a worker, and the time that it computed and sent."""
    busy_s = sum(report.parts[name] for report in reports for name in ("compute_s", "push_s", "pull_s"))
    return sum(report.samples for report in reports), busy_s


def _missed(report: Report, reports: Sequence[Report]) -> int:
    """Updates of others that took effect between its pull and its own."""
    return sum(report.pulled_s < other.at_s < report.at_s and other.rank != report.rank for other in reports)


def _seconds(row: Mapping[str, Any]) -> float:
    return int(str(row["stream_id"]).partition("-")[0]) / 1000
