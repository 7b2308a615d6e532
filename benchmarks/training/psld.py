"""PSLD against MXNet's placement, round robin and proportional shares, with one server on a slow link.

    manage.py bench training psld [--iterations 60] [--scale 0.002] [--pause] [--json]

Real jobs, one after another: 4 workers that push and pull the parameters of VGG16 (each tensor scaled down), 4 servers
with emulated links, one of which has a tenth of the others' speed, permanently or for the second quarter of the
iterations. Samples, seeds and steps are the same everywhere; the links are so slow that they determine the time, not
this machine's processors. Reported are the length of an iteration in each quarter (median; of the slowest worker), the
whole job's against MXNet's, and what the changes of placement cost: the longest pause of a worker, beside what the
change costs through a checkpoint. For that the same job is stopped at a checkpoint and a new one continues from it.
This takes from its submission to the end of its first iteration, less an iteration; writing the checkpoint comes on top
and is not counted. Bar: a tenth of that. ``--pause`` tells only this, of PSLD with a lastingly thin server, over links
four times as wide: blocks must go through that thin link, on which a restart spends none of its time.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any

from benchmarks.tables import say
from benchmarks.training.jobs import Outcome, run_job, training_cluster

PLACEMENTS = ("mxnet", "round-robin", "proportional", "psld", "psld-lpt")
WORKERS = SERVERS = 4
CUT = 6
"""Iterations before the checkpoint from which another job continues, and after it."""

RARELY = 10
"""Fewest iterations between two changes, so that each is measured before the next."""

LINK = 16e6
"""Bytes per second, each way."""

THIN = LINK / 10
WIDE = 4 * LINK
PAUSE_BAR = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One placement under one disturbance; seconds."""

    disturbance: str
    placement: str
    total_s: float
    quarters_s: list[float]
    speedup: float
    """MXNet's total time divided by this one's."""
    changes: int
    moved: int
    """Number of moved blocks, over all changes."""
    paused_s: float | None
    """The longest pause of a worker by one change; None if no change was measured."""
    loss: float | None


def links_of(disturbance: str, iterations: int, link: float = LINK) -> list[dict[str, Any]]:
    """The links of all servers; the last one is slow, the others have ``link`` bytes per second."""
    usual, thin = {"bytes_per_second": link}, {"bytes_per_second": THIN * link / LINK}
    if disturbance == "lasting":
        return [*[usual] * (SERVERS - 1), thin]
    changes = [thin | {"iteration": iterations // 4}, usual | {"iteration": iterations // 2}]
    return [*[usual] * (SERVERS - 1), usual | {"changes": changes}]


def spec_of(
    disturbance: str, placement: str, iterations: int, scale: float, *, every: int = 5, link: float = LINK
) -> dict[str, Any]:
    """The job: blocks are scaled like the tensors, so there are as many as of the whole network."""
    chosen: dict[str, Any] = {"name": placement, "block_bytes": max(4096, int(4 * 2**20 * scale))}
    if placement == "mxnet":
        chosen["large"] = max(1, int(1_000_000 * scale))
    elif placement != "round-robin":
        chosen["every"] = every
    return {
        "name": f"{disturbance}-{placement}",
        "workload": {"name": "vgg16-shape", "dataset": "none", "options": {"scale": scale}},
        "workers": WORKERS,
        "servers": SERVERS,
        "batch_size": 8,
        "synchronization": {"placement": chosen},
        "emulate_servers": links_of(disturbance, iterations, link),
        "optimizer": {"name": "sgd", "lr": 0.01},
        "evaluate": {"every": 1000},
        "stop": {"iterations": iterations},
        "seed": 7,
    }


def measure(plan: argparse.Namespace) -> dict[str, Any]:
    """Run all jobs."""
    rows: list[Row] = []
    with training_cluster([100_000.0] * WORKERS, server_slots=SERVERS) as cluster:
        restart_s = restart_from_checkpoint_s(partial(run_job, cluster), plan.scale)
        if not plan.json:
            say(f"stopped at a checkpoint and continued in a new job: {restart_s:.2f} s")
            say("disturbance placement        total  over mxnet   median iteration in each quarter       changes")
        for disturbance in ("lasting", "transient"):
            baseline: Row | None = None
            for placement in PLACEMENTS:
                outcome = run_job(cluster, spec_of(disturbance, placement, plan.iterations, plan.scale))
                row = _row(outcome, disturbance, placement, baseline)
                baseline = baseline or row
                rows.append(row)
                if not plan.json:
                    say(_line(row))
    return {"rows": [asdict(row) for row in rows], "restart_s": restart_s, "failures": _failures(rows, restart_s)}


def measure_pause(plan: argparse.Namespace) -> dict[str, Any]:
    """Measure only the pause of changes and the restart from a checkpoint."""
    with training_cluster([100_000.0] * WORKERS, server_slots=SERVERS) as cluster:
        restart_s = restart_from_checkpoint_s(partial(run_job, cluster), plan.scale)
        outcome = run_job(cluster, spec_of("lasting", "psld", plan.iterations, plan.scale, every=RARELY, link=WIDE))
    row = _row(outcome, "lasting", "psld", None)
    if not plan.json:
        say(pause_line(row, restart_s))
    failures = _failures([row], restart_s)
    if row.paused_s is None:
        failures.append(f"no change of placement was measured in {plan.iterations} iterations")
    return {"rows": [asdict(row)], "restart_s": restart_s, "failures": failures}


def pause_line(row: Row, restart_s: float) -> str:
    """A sentence that compares the longest pause with a restart."""
    held = (
        "no pause was measured"
        if row.paused_s is None
        else f"workers were delayed by at most {row.paused_s * 1000:.0f} ms"
    )
    part = "" if row.paused_s is None else f": {row.paused_s / restart_s:.0%} (target {PAUSE_BAR:.0%})"
    moved = f"{row.moved} blocks moved in {row.changes} change{'' if row.changes == 1 else 's'} of placement"
    return f"{moved}: {held}; a restart from a checkpoint takes {restart_s * 1000:.0f} ms{part}"


def restart_from_checkpoint_s(run: Callable[[dict[str, Any]], Outcome], scale: float) -> float:
    """The cost of a change of placement by a checkpoint and a new job that continues from it."""
    document = spec_of("lasting", "round-robin", CUT, scale) | {"checkpoint": {"every": CUT}}
    stopped = run(document)
    onward = {"name": "goes-on", "stop": {"iterations": 2 * CUT}, "start_from": {"job": stopped.job["id"]}}
    outcome = run(document | onward)
    return round(outcome.start_s + max(0.0, outcome.iteration_s[0] - median(outcome.iteration_s[1:])), 2)


def _row(outcome: Outcome, disturbance: str, placement: str, baseline: Row | None) -> Row:
    seconds = outcome.iteration_s
    quarter = max(1, len(seconds) // 4)
    total_s = sum(seconds)
    moves = outcome.of_kind("move-blocks")
    return Row(
        disturbance=disturbance,
        placement=placement,
        total_s=round(total_s, 3),
        quarters_s=[round(median(seconds[at * quarter : (at + 1) * quarter]), 4) for at in range(4)],
        speedup=round(baseline.total_s / total_s, 2) if baseline else 1.0,
        changes=len(moves),
        moved=sum(len(move["payload"]["moves"]) for move in moves),
        paused_s=_longest_pause(outcome),
        loss=outcome.job["loss"],
    )


def _longest_pause(outcome: Outcome) -> float | None:
    pauses = [float(row["payload"]["paused_s"]) for row in outcome.of_kind("measure-placement")]
    return round(max(pauses), 4) if pauses else None


def _failures(rows: list[Row], restart_s: float) -> list[str]:
    failures = [
        f"{row.disturbance} {row.placement}: a change delayed a worker by {row.paused_s:.3f} s,"
        f" more than {PAUSE_BAR:.0%} of a restart from a checkpoint ({restart_s:.2f} s)"
        for row in rows
        if row.paused_s is not None and row.paused_s > PAUSE_BAR * restart_s
    ]
    losses = [row.loss for row in rows if row.loss is not None]
    if losses and max(losses) - min(losses) > 1e-3 * max(losses):
        failures.append(f"final losses differ: {min(losses):.6g} to {max(losses):.6g}")
    return failures


def _line(row: Row) -> str:
    quarters = " ".join(f"{seconds * 1000:7.0f}" for seconds in row.quarters_s)
    paused = "      -" if row.paused_s is None else f"{row.paused_s * 1000:5.0f} ms"
    return (
        f"{row.disturbance:10} {row.placement:13} {row.total_s:7.1f} s {row.speedup:5.2f} x   {quarters} ms   "
        f"{row.changes:2} changes, {row.moved:3} blocks, paused {paused}"
    )


def main(arguments: list[str] | None = None) -> int:
    """Print the table; 0 if every target is met, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--scale", type=float, default=0.002, help="of each tensor of VGG16 (default: %(default)s)")
    parser.add_argument("--pause", action="store_true", help="only the cost of a change of placement")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    given = parser.parse_args(arguments)
    document = measure_pause(given) if given.pause else measure(given)
    if given.json:
        say(json.dumps(document))
    for failure in document["failures"] if not given.json else []:
        say(f"MISSED: {failure}")
    return 1 if document["failures"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
