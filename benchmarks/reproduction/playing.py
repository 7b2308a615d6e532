"""Runs scenarios as real jobs, one after another, on one control plane with one machine of many slots."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

from benchmarks.live.cluster import BenchCluster, running_cluster
from benchmarks.reproduction.reading import Records, played_of, report_of, score_of
from controlplane.runtime.embedded.errors import CannotStart, Interrupted
from controlplane.simulator.reproduction.claims import Run
from controlplane.simulator.reproduction.live.emulation import job_of
from controlplane.simulator.reproduction.live.results import FailedRun, LiveRun, run_digest
from controlplane.simulator.scenario import Scenario
from controlplane.simulator.scenarios import find
from controlplane.telemetry.code_digest import LIVE, digest_of_code

FAST: Final = 100_000.0
"""Samples per second of the slots; a job says how fast its machines are."""
LIMIT_S: Final = 600.0
LOOK_S: Final = 0.5
SETTLE_S: Final = 30.0


def play_all(keys: Sequence[tuple[Run, int]]) -> Iterator[LiveRun | FailedRun]:
    """Run each and yield its result; a failed job does not prevent the others.

    Raises:
        RuntimeError: if no control plane can be started.
    """
    scenarios = [find(run.scenario) for run, _ in keys]
    slots = max(scenario.spec.workers for scenario in scenarios)
    servers = max(scenario.spec.servers + scenario.spare_servers for scenario in scenarios)
    code = digest_of_code(LIVE)
    try:
        with _cluster(slots, servers) as cluster:
            for run, seed in keys:
                try:
                    yield play(cluster, run, seed, code)
                except RuntimeError as error:
                    yield FailedRun(scenario=run.scenario, policy=run.policy, seed=seed, why=str(error))
    except CannotStart as error:
        raise RuntimeError(str(error)) from None
    except Interrupted:
        raise KeyboardInterrupt from None


def play(cluster: BenchCluster, run: Run, seed: int, code: str) -> LiveRun:
    """One run.

    Raises:
        RuntimeError: if its job does not succeed.
    """
    scenario = find(run.scenario)
    records = _records(cluster, job_of(scenario, run.policy, seed))
    played = played_of(scenario, run.policy, seed, records)
    return LiveRun(
        digest=run_digest(run, seed),
        scenario=run.scenario,
        policy=run.policy,
        seed=seed,
        live=played,
        at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        load=round(os.getloadavg()[0], 2),
        cores=os.cpu_count() or 1,
        overran=overrun(scenario, records),
        code=code,
    )


def overrun(scenario: Scenario, records: Records) -> float:
    """The part of the computing time that the emulated machines would not have taken."""
    machines = [group.machine for group in scenario.machines]
    spent = late = 0.0
    for report in records.reports:
        due_s = _due_s(machines[report.rank], report.samples)
        spent += report.parts["compute_s"]
        late += max(0.0, report.parts["compute_s"] - due_s)
    return late / spent if spent else 0.0


def _due_s(machine: Any, samples: int) -> float:
    """The time that an emulated machine takes for ``samples`` samples."""
    if not samples:
        return 0.0
    if hasattr(machine, "samples_per_second"):
        return float(machine.slowness * (machine.overhead_s + samples / machine.samples_per_second))
    return float(machine.launch_s + max(samples, machine.saturation) * machine.seconds_per_sample)


@contextmanager
def _cluster(slots: int, servers: int) -> Iterator[BenchCluster]:
    with running_cluster() as cluster:
        cluster.join("machine", speeds=[FAST] * slots, server_slots=servers, restarts=False)
        yield cluster


def _records(cluster: BenchCluster, document: dict[str, Any]) -> Records:
    """Run the job to its end, and read its history once that is complete."""
    number = int(cluster.ask("POST", "jobs", json=document)["id"])
    job = cluster.wait(number, lambda found: bool(found["is_over"]), seconds=LIMIT_S)
    if not job.get("is_over"):
        cluster.ask("POST", f"jobs/{number}/actions/stop")
        raise RuntimeError(f"job {number} ({document['name']}) was not over after {LIMIT_S:g} s")
    if job["state"] != "succeeded":
        raise RuntimeError(f"job {number} ({document['name']}) {job['state']}: {job['reason']}")
    deadline, count, rows = time.monotonic() + SETTLE_S, -1, _rows(cluster, number, "report")
    while len(rows) != count and time.monotonic() < deadline:
        count = len(rows)
        time.sleep(LOOK_S)
        rows = _rows(cluster, number, "report")
    processes = cluster.pages(f"jobs/{number}/processes?page_size=100")
    return Records(
        reports=sorted(map(report_of, rows), key=lambda report: report.at_s),
        scores=sorted(map(score_of, _rows(cluster, number, "evaluation")), key=lambda score: score[0]),
        decisions=[
            row
            for kind in ("move-blocks", "move-splits", "measure-placement")
            for row in cluster.pages(f"jobs/{number}/decisions?kind={kind}&page_size=500")
        ],
        servers=1 + max((row["index"] for row in processes if row["role"] == "server"), default=-1),
        block_bytes={},
    )


def _rows(cluster: BenchCluster, number: int, kind: str) -> list[dict[str, Any]]:
    return cluster.pages(f"jobs/{number}/events?kind={kind}&page_size=500")
