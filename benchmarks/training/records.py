"""What real jobs on emulated machines said of themselves."""

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

from benchmarks.live.cluster import BenchCluster
from benchmarks.training.jobs import run_job

METRICS: Final = ("iteration_s", "waiting_s", "samples", "compute_s", "accuracy", "evaluation_loss")
LOOK_S: Final = 0.5
SETTLE_S: Final = 30.0
LIMIT_S: Final = 300.0
SETTLED_FROM: Final = 30
"""Iterations before this one are shares being found."""

WARM_UP: Final = 2
"""A process's first iterations load and measure what later ones need not."""

SCORER: Final = 0
"""The worker that evaluates; its clock is the run's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What one run said of itself: by metric, iteration and worker; scores by iteration of the one who scores."""

    label: str
    series: Mapping[str, Mapping[int, Mapping[int, float]]]
    accuracy: Mapping[int, float]
    loss: Mapping[int, float]
    """On the held-out split."""
    speeds: Mapping[int, float]
    """Samples per second of each worker's machine, where it has one speed."""
    trained: tuple[str, ...] = ()
    """What was said whenever its predictor was trained."""
    reported_late: float = 0.0
    """Part of the reports that said of themselves that the real work outlasted the emulated."""

    @property
    def seconds(self) -> float:
        """From the first iteration to the end, on the clock of the one who scores."""
        return self.clock_s(None)

    @property
    def updates(self) -> int:
        """Reports of all workers."""
        return sum(len(row) for row in self.series["samples"].values())

    @property
    def samples(self) -> int:
        """Processed by all workers."""
        return int(sum(sum(row.values()) for row in self.series["samples"].values()))

    @property
    def final_accuracy(self) -> float:
        """Of the last evaluation."""
        return self.accuracy[max(self.accuracy)] if self.accuracy else 0.0

    @property
    def overruns(self) -> float:
        """The part of all computing time that is this machine's and not that of the emulated ones.

        That is what lies beyond samples by speed. Machines that follow a trace have no such figure: of these it is the
        part of the reports that said so of themselves, which does not know of a rest that lasted too long.
        """
        if not self.speeds:
            return self.reported_late
        computed = [
            (seconds, seconds - self.series["samples"][k].get(rank, 0.0) / self.speeds[rank])
            for k, row in self.series["compute_s"].items()
            for rank, seconds in row.items()
            if k >= WARM_UP
        ]
        whole_s = sum(seconds for seconds, _ in computed)
        return sum(max(0.0, late_s) for _, late_s in computed) / whole_s if whole_s else 0.0

    @property
    def waiting_share(self) -> float:
        """Waiting as a part of all workers' time."""
        whole = sum(sum(row.values()) for row in self.series["iteration_s"].values())
        return sum(sum(row.values()) for row in self.series["waiting_s"].values()) / whole if whole else 0.0

    def iteration_s(self, since: int = SETTLED_FROM) -> float:
        """Mean over workers and iterations from ``since`` on."""
        seconds = [v for k, row in self.series["iteration_s"].items() if k >= since for v in row.values()]
        return fmean(seconds) if seconds else float("nan")

    def iteration_within_s(self, begin_s: float, end_s: float) -> float:
        """Mean over workers of the iterations that the scorer began in that span of its clock."""
        row, at_s, seconds = self.series["iteration_s"], 0.0, list[float]()
        for k in sorted(row):
            if begin_s <= at_s < end_s:
                seconds += row[k].values()
            at_s += row[k].get(SCORER, 0.0)
        return fmean(seconds) if seconds else float("nan")

    def clock_s(self, before: int | None) -> float:
        """Time of the scorer's iterations before that one."""
        row = self.series["iteration_s"]
        return sum(row[k].get(SCORER, 0.0) for k in row if before is None or k < before)

    def clock_to_loss(self, target: float) -> float | None:
        """When an evaluation first found that loss on the held-out split, or less; None if none did."""
        reached = min((k for k, loss in self.loss.items() if loss <= target), default=None)
        return None if reached is None else self.clock_s(reached)


def take_down(cluster: BenchCluster, label: str, document: Mapping[str, Any]) -> Record:
    """Run a job and take down its history, once nothing is added to it any more.

    Raises:
        RuntimeError: if it does not succeed.
    """
    number = run_job(cluster, document, limit_s=LIMIT_S).job["id"]
    deadline = time.monotonic() + SETTLE_S
    found, before = _read(cluster, number, label), -1
    while (found.updates != before or not found.accuracy) and time.monotonic() < deadline:
        before = found.updates
        time.sleep(LOOK_S)
        found = _read(cluster, number, label)
    return found


def _read(cluster: BenchCluster, number: int, label: str) -> Record:
    series: dict[str, dict[int, dict[int, float]]] = {name: defaultdict(dict) for name in METRICS}
    scores: dict[str, dict[int, float]] = {"accuracy": {}, "evaluation_loss": {}}
    answer = cluster.ask("GET", f"jobs/{number}/metrics", params={"metric": METRICS, "since": 0, "points": 10_000})
    for row in answer["series"]:
        for iteration, value in zip(row["iterations"], row["values"], strict=True):
            if row["metric"] in scores:
                scores[row["metric"]][iteration] = value
            else:
                series[row["metric"]][iteration][row["worker"]] = value
    reports = [row["event"]["message"] for row in cluster.pages(f"jobs/{number}/events?kind=report&page_size=500")]
    late = [bool(report.get("overran")) for report in reports if report["iteration"] >= WARM_UP]
    processes = cluster.ask("GET", f"jobs/{number}/processes", params={"page_size": 100})["results"]
    adopted = cluster.pages(f"jobs/{number}/decisions?kind=adopt-predictor&page_size=500")[::-1]
    return Record(
        label=label,
        series=series,
        trained=tuple(row["reason"] for row in adopted),
        accuracy=scores["accuracy"],
        loss=scores["evaluation_loss"],
        speeds={
            process["index"]: speed
            for process in processes
            if process["role"] == "worker" and (speed := process["emulate"].get("samples_per_second")) is not None
        },
        reported_late=fmean(late) if late else 0.0,
    )
