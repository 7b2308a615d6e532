"""``manage.py bench training lb-bsp|lb-bsp-shared|a-bsp|psp``: systems of the papers, as real processes, compared with
baselines.

Machines are emulated, and slow enough that their times do not depend on this machine's processors: the fraction of
computing time that does is printed, and above a twentieth the run is reported as invalid. Samples, seeds and steps are
the same for all runs of an experiment, and stated; differences are stated too.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.training.cpu_traces import write_traces
from benchmarks.training.jobs import training_cluster
from benchmarks.training.records import Record, take_down

MOST_OVERRUN: Final = 0.05
MOST_POINTS: Final = 1.0
"""Final accuracies this close, in points, are equal."""

Choices = Mapping[str, Any]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """Runs to compare; the first is the baseline."""

    name: str
    title: str
    speeds: tuple[float, ...] = ()
    """Speeds of the machines; without any they follow the traces of ``cpu_traces``."""
    job: Mapping[str, Any]
    runs: Mapping[str, Choices]
    judge: Callable[[Sequence[Record]], tuple[list[Row], list[str]]]
    notes: tuple[str, ...] = ()
    servers: int = 2


def _job(**changes: Any) -> dict[str, Any]:
    base = {
        "workload": {"name": "softmax-regression", "dataset": "digits"},
        "batch_size": 64,
        "optimizer": {"name": "sgd", "lr": 0.1},
        "evaluate": {"every": 5},
        "seed": 7,
    }
    return base | changes


def _by_time(
    records: Sequence[Record], measure: Callable[[Record], float] = Record.iteration_s, *, may_be_better: bool = False
) -> tuple[list[Row], list[str]]:
    """Same samples per iteration: compare time per iteration at equal final accuracy (or better)."""
    base, rows, failures = records[0], [], []
    for record in records:
        ratio = measure(record) / measure(base)
        rows.append(_row(record) | {"iteration_ms": 1000 * measure(record), "to_baseline": ratio})
        points = 100 * (record.final_accuracy - base.final_accuracy)
        if points < -MOST_POINTS or (points > MOST_POINTS and not may_be_better):
            failures.append(f"{record.label}: final accuracy is {abs(points):.2f} points from {base.label}'s")
        if record is not base and ratio >= 1.0:
            failures.append(f"{record.label}: {ratio:.2f} of {base.label}'s iteration time, expected less than 1")
    return rows, failures


TRACED_S: Final = 75
SETTLED_S: Final = 28
"""The time after which NARX is trained."""

NARX: Final = {"name": "narx", "samples": 60, "retrain_every": 60}
"""Settings for training within these runs, which are shorter than the paper's, where the first training is after 500
iterations.
"""


def _by_clock(records: Sequence[Record]) -> tuple[list[Row], list[str]]:
    """The same machines at the same times: compare time per iteration in the same interval.

    A run with more iterations may end with a better accuracy, not with a worse one.
    """
    return _by_time(records, lambda record: record.iteration_within_s(SETTLED_S, TRACED_S), may_be_better=True)


TARGET_LOSS: Final = 0.6


def _by_loss(records: Sequence[Record]) -> tuple[list[Row], list[str]]:
    """Different samples per iteration: compare time to the same loss."""
    rows, failures = [], []
    base = records[0].clock_to_loss(TARGET_LOSS)
    for record in records:
        took = record.clock_to_loss(TARGET_LOSS)
        ratio = took / base if took and base else None
        rows.append(_row(record) | {"to_loss_s": took, "to_baseline": ratio})
        if took is None:
            failures.append(f"{record.label}: never reached a loss of {TARGET_LOSS}")
        elif record is not records[0] and ratio is not None and ratio >= 1.0:
            failures.append(
                f"{record.label}: {ratio:.2f} of {records[0].label}'s time to the loss, expected less than 1"
            )
    return rows, failures


def _by_updates(records: Sequence[Record]) -> tuple[list[Row], list[str]]:
    """The same time for all: compare updates in it, and accuracy at its end."""
    base = records[0].updates / records[0].seconds
    rows = [_row(record) | {"to_baseline": record.updates / record.seconds / base} for record in records]
    slower = [
        record.label for record, row in zip(records, rows, strict=True) if row["to_baseline"] < 1.0 - MOST_OVERRUN
    ]
    return rows, [f"{label}: fewer updates per second than {records[0].label}" for label in slower]


def _row(record: Record) -> Row:
    return {
        "run": record.label,
        "seconds": record.seconds,
        "updates": record.updates,
        "samples": record.samples,
        "waiting": record.waiting_share,
        "accuracy": record.final_accuracy,
        "overran": record.overruns,
    }


def _lb_bsp(predictor: str | Choices) -> Choices:
    return {"batching": {"name": "lb-bsp-cpu", "predictor": predictor, "literal": True}}


UNEVEN: Final = (400.0, 400.0, 200.0, 100.0)
CROWD: Final = (160.0,) * 12 + (80.0, 80.0, 40.0, 40.0)
TRACE_SEED: Final = 7
ABSP: Final = {"name": "aggressive", "ratio": 0.5}

EXPERIMENTS: Final = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            name="lb-bsp",
            title="LB-BSP beside BSP: 4 workers of speed 1, 1, 1/2, 1/4; softmax regression on digits, batch 256",
            speeds=UNEVEN,
            job=_job(workers=4, servers=2, stop={"iterations": 150}),
            runs={"BSP": {}, "LB-BSP, EMA": _lb_bsp("ema"), "LB-BSP, NARX": _lb_bsp(NARX)},
            judge=_by_time,
            notes=(
                "Same samples in the same order, same seed, lr 0.1. Speeds do not change: least possible is 0.364.",
                f"NARX is trained after {NARX['samples']} iterations; where it does not beat the average, that stays.",
            ),
        ),
        Experiment(
            name="lb-bsp-shared",
            title=f"LB-BSP beside BSP on shared CPUs: 4 machines that follow a trace for {TRACED_S} s, batch 256",
            job=_job(workers=4, servers=2, stop={"seconds": TRACED_S}),
            runs={"BSP": {}, "LB-BSP, EMA": _lb_bsp("ema"), "LB-BSP, NARX": _lb_bsp(NARX)},
            judge=_by_clock,
            notes=(
                f"The same trace of speed, CPU and memory for all; iterations count from {SETTLED_S} s on, when",
                f"NARX was trained: after {NARX['samples']} iterations, and again after as many.",
                "Same samples in the same order, same seed, lr 0.1; the faster one makes more iterations in that time.",
            ),
        ),
        Experiment(
            name="a-bsp",
            title=f"A-BSP beside BSP on the same machines: time to a loss of {TARGET_LOSS} on the held-out split",
            speeds=UNEVEN,
            job=_job(workers=4, servers=2, stop={"iterations": 150}),
            runs={
                "BSP": {},
                "A-BSP": {"barrier": ABSP},
                "A-BSP, rotation": {"barrier": ABSP, "data": {"name": "rotation"}},
                "A-BSP, exchange": {"barrier": ABSP, "data": {"name": "exchange"}},
            },
            judge=_by_loss,
            notes=(
                "Same seed, lr 0.1 for all; an iteration of A-BSP stands for a part of its 256 samples (ratio 0.5).",
                "The loss is scored every 5 iterations.",
            ),
        ),
        Experiment(
            name="psp",
            title="pBSP and pSSP beside BSP, SSP and ASP: 16 workers (12 of speed 1, 2 of 1/2, 2 of 1/4), 60 s each",
            speeds=CROWD,
            servers=1,
            job=_job(
                workers=16,
                servers=1,
                batch_size=32,
                workload={"name": "softmax-regression", "dataset": "digits", "partition": "two-shards"},
                stop={"seconds": 60},
            ),
            runs={
                "BSP": {},
                "SSP, s = 4": {"barrier": {"name": "ssp", "staleness": 4}},
                "ASP": {"barrier": {"name": "asp"}},
                "pBSP, 4 sampled": {"barrier": {"name": "pbsp", "sample": 4}},
                "pSSP, 4 sampled, s = 4": {"barrier": {"name": "pssp", "sample": 4, "staleness": 4}},
            },
            judge=_by_updates,
            notes=(
                "Every worker keeps two shards of sorted labels. Same seed, lr 0.1; an update applied on arrival",
                "makes 1/16 of a step (ruling 23), so 16 updates are one of BSP's steps.",
            ),
        ),
    )
}


def untrained(experiment: Experiment, records: Sequence[Record]) -> list[str]:
    """Runs whose predictor should have been trained and was not."""
    return [
        f"{record.label}: its predictor was never trained"
        for record, choices in zip(records, experiment.runs.values(), strict=True)
        if choices == _lb_bsp(NARX) and not record.trained
    ]


def run(name: str) -> dict[str, Any]:
    """Run an experiment; returns the results.

    Raises:
        RuntimeError: if a run does not succeed.
    """
    experiment = EXPERIMENTS[name]
    records = []
    with (
        TemporaryDirectory() as folder,
        training_cluster(
            experiment.speeds or write_traces(Path(folder), machines=experiment.job["workers"], seed=TRACE_SEED),
            server_slots=experiment.servers,
        ) as cluster,
    ):
        for label, choices in experiment.runs.items():
            document = dict(experiment.job) | {"name": f"{name} {label}"[:80], "synchronization": dict(choices)}
            records.append(take_down(cluster, label, document))
    rows, failures = experiment.judge(records)
    invalid = [
        f"{record.label}: invalid, {record.overruns:.0%} of its computing time is not the emulated machines'"
        for record in records
        if record.overruns > MOST_OVERRUN
    ]
    return {
        "experiment": name,
        "title": experiment.title,
        "notes": [
            *experiment.notes,
            *(f"{record.label}: {sentence}" for record in records for sentence in record.trained[-1:]),
        ],
        "rows": rows,
        "failures": failures + untrained(experiment, records) + invalid,
    }


COLUMNS: Final = {
    "seconds": ("in all", "{:.1f} s"),
    "iteration_ms": ("iteration", "{:.0f} ms"),
    "to_loss_s": ("to the loss", "{:.1f} s"),
    "to_baseline": ("of the first", "{:.2f}"),
    "updates": ("updates", "{:,}"),
    "samples": ("samples", "{:,}"),
    "waiting": ("waiting", "{:.0%}"),
    "accuracy": ("accuracy", "{:.4f}"),
    "overran": ("overran", "{:.1%}"),
}


def table(document: Mapping[str, Any]) -> str:
    """The results as a table."""
    rows = document["rows"]
    shown = [key for key in COLUMNS if key in rows[0]]
    lines = [document["title"], f"{'':26}" + "".join(f"{COLUMNS[key][0]:>14}" for key in shown)]
    for row in rows:
        cells = ("-" if row[key] is None else COLUMNS[key][1].format(row[key]) for key in shown)
        lines.append(f"{row['run']:26}" + "".join(f"{cell:>14}" for cell in cells))
    return "\n".join([*lines, *document["notes"]])


def main(arguments: list[str]) -> int:
    """Run the experiment that the first argument names, and print the results; 1 if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(EXPERIMENTS))
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    given = parser.parse_args(arguments)
    document = run(given.name)
    text = "\n".join([table(document), *(f"MISSED: {failure}" for failure in document["failures"])])
    sys.stdout.write((json.dumps(document) if given.json else text) + "\n")
    return 1 if document["failures"] else 0
