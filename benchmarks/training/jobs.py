"""Jobs of experiments with real processes: run one to its end, and read what it reported."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from benchmarks.live.cluster import BenchCluster, running_cluster

POLL_S: Final = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A job that has succeeded. Seconds are by the workers' clocks, one value per iteration: that of the slowest
    worker.
    """

    job: dict[str, Any]
    iteration_s: list[float]
    decisions: list[dict[str, Any]]

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """The decisions of that kind, the first one first."""
        return [row for row in self.decisions if row["kind"] == kind]

    @property
    def start_s(self) -> float:
        """Time from its submission until it ran: the cost of starting its processes."""
        began, ran = (datetime.fromisoformat(self.job[name]).timestamp() for name in ("created_at", "started_at"))
        return ran - began


@contextmanager
def training_cluster(speeds: Sequence[float | Path], *, server_slots: int) -> Iterator[BenchCluster]:
    """A control plane with one machine with slots of these emulated speeds."""
    with running_cluster() as cluster:
        cluster.join("bench", speeds=speeds, server_slots=server_slots, restarts=False)
        yield cluster


def run_job(cluster: BenchCluster, document: Mapping[str, Any], *, limit_s: float = 300.0) -> Outcome:
    """Submit a job and wait for its end.

    Raises:
        RuntimeError: if it does not succeed in time, with the job's reason.
    """
    number = cluster.ask("POST", "jobs", json=dict(document))["id"]
    deadline = time.monotonic() + limit_s
    while not (job := cluster.ask("GET", f"jobs/{number}"))["is_over"]:
        if time.monotonic() > deadline:
            cluster.ask("POST", f"jobs/{number}/actions/stop")
            raise RuntimeError(f"job {number} ({document['name']}) was not over after {limit_s:g} s")
        time.sleep(POLL_S)
    if job["state"] != "succeeded":
        raise RuntimeError(f"job {number} ({document['name']}) {job['state']}: {job['reason']}")
    time.sleep(2 * POLL_S)  # the last rows are still being copied to the database
    series = cluster.ask("GET", f"jobs/{number}/metrics", params={"metric": "iteration_s", "points": 5000})["series"]
    columns = zip(*(row["values"] for row in series), strict=False)
    return Outcome(
        job=job,
        iteration_s=[max(column) for column in columns],
        decisions=cluster.pages(f"jobs/{number}/decisions?page_size=500")[::-1],
    )
