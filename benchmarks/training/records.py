"""Reports of real jobs on emulated machines."""

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
"""Shares have converged from this iteration on."""

WARM_UP: Final = 2
"""The first iterations of a process, which include loading and calibration."""

SCORER: Final = 0
"""The worker that evaluates; its clock is used for the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The record of one run: values by metric, iteration and worker; scores by iteration of the evaluating worker."""

    label: str
    series: Mapping[str, Mapping[int, Mapping[int, float]]]
    accuracy: Mapping[int, float]
    loss: Mapping[int, float]
    """Loss on the held-out split."""
    speeds: Mapping[int, float]
    """Samples per second of each worker's machine, if it is constant."""
    trained: tuple[str, ...] = ()
    """The sentences about each training of its predictor."""
    reported_late: float = 0.0
    """Fraction of reports in which the real computation took longer than the emulated one."""

    @property
    def seconds(self) -> float:
        """From the first iteration to the end, on the clock of the evaluating worker."""
        return self.clock_s(None)

    @property
    def updates(self) -> int:
        """The number of reports of all workers."""
        return sum(len(row) for row in self.series["samples"].values())

    @property
    def samples(self) -> int:
        """Samples processed by all workers."""
        return int(sum(sum(row.values()) for row in self.series["samples"].values()))

    @property
    def final_accuracy(self) -> float:
        """Accuracy of the last evaluation."""
        return self.accuracy[max(self.accuracy)] if self.accuracy else 0.0

    @property
    def overruns(self) -> float:
        """The fraction of computing time by which this machine is slower than the emulated ones.

        That is the time beyond samples divided by speed. For machines that follow a trace it is the fraction of reports
        with an overrun, which does not include pauses that were too long.
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
        """Waiting as a fraction of all workers' time."""
        whole = sum(sum(row.values()) for row in self.series["iteration_s"].values())
        return sum(sum(row.values()) for row in self.series["waiting_s"].values()) / whole if whole else 0.0

    def iteration_s(self, since: int = SETTLED_FROM) -> float:
        """Mean over workers and iterations from ``since`` on."""
        seconds = [v for k, row in self.series["iteration_s"].items() if k >= since for v in row.values()]
        return fmean(seconds) if seconds else float("nan")

    def iteration_within_s(self, begin_s: float, end_s: float) -> float:
        """Mean over workers of the iterations that the evaluating worker began in that interval of its clock."""
        row, at_s, seconds = self.series["iteration_s"], 0.0, list[float]()
        for k in sorted(row):
            if begin_s <= at_s < end_s:
                seconds += row[k].values()
            at_s += row[k].get(SCORER, 0.0)
        return fmean(seconds) if seconds else float("nan")

    def clock_s(self, before: int | None) -> float:
        """Time of the evaluating worker's iterations before that one."""
        row = self.series["iteration_s"]
        return sum(row[k].get(SCORER, 0.0) for k in row if before is None or k < before)

    def clock_to_loss(self, target: float) -> float | None:
        """When an evaluation first reached that loss on the held-out split; None if none did."""
        reached = min((k for k, loss in self.loss.items() if loss <= target), default=None)
        return None if reached is None else self.clock_s(reached)


def take_down(cluster: BenchCluster, label: str, document: Mapping[str, Any]) -> Record:
    """Run a job and read its history once that is complete.

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
