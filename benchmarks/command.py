"""The command line of ``manage.py bench NAME``: which benchmarks there are, their options, and exit codes."""

import json
import subprocess
import sys
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from benchmarks.live.measuring import SECONDS
from benchmarks.tables import say
from controlplane.runtime.embedded.control_plane import CHECKOUT
from controlplane.runtime.embedded.errors import CannotStart, Interrupted

MEASURED: Final = {
    "chaos": "faults.chaos",
    "decisions": "live.decisions",
    "faults": "faults.control_plane",
    "fleet": "live.fleet",
    "fuzz": "security.fuzz",
    "history": "database.history",
    "hostile": "security.hostile",
    "ingest": "database.ingest",
    "jobs": "live.jobs",
    "leak": "live.leak",
    "twin": "live.twin",
    "viewers": "live.viewers",
}
"""Benchmarks that share the options of this command: modules with ``run(options)`` and ``table(document)``.

Those that look into a control plane's database have ``measure(within)`` too, for a process with its settings.
"""

STANDALONE: Final = {
    "allreduce": "dataplane.allreduce",
    "attached": "training.attached",
    "autopilot": "offline.autopilot",
    "dataplane": "dataplane.servers",
    "energy": "offline.energy",
    "engine": "offline.engine",
    "guard": "offline.guard",
    "guard-growth": "training.guard_growth",
    "memory": "dataplane.memory",
    "overhead": "offline.overhead",
    "overlay": "offline.overlay",
    "pages": "live.pages",
    "peers": "peers.command",
    "prediction": "offline.prediction",
    "prediction-cost": "offline.prediction_cost",
    "simulator": "offline.simulator",
    "standstill": "faults.standstill",
    "start": "live.start",
    "step-scale": "training.step_scale",
    "stragglers": "offline.stragglers",
    "training": "training.suite",
    "transport": "dataplane.transport",
}
"""Programs with options of their own: they need no control plane, or start one themselves."""

DESCRIPTION: Final = (
    "Measure on this machine. decisions: latency from a report to orders, compared with an echo server; "
    "fleet: many workers that report at a constant rate; jobs: 100 jobs on one Celery process, then on two; "
    "chaos: kills, pauses and partitions of processes while a job trains; leak: memory during a long job; "
    "hostile: attacks by anonymous clients and a malicious machine while other jobs train; "
    "fuzz: mutated frames, drawn from a seed, to all sockets and the data plane while another job trains; "
    "viewers: CPU of fifty open pages, time until a page shows a report, and memory of its tab; "
    "history: time to read a long job, compared with raw rows; "
    "ingest: rate of written rows, compared with a bare executemany; "
    "faults: kills, pauses, partitions of the control plane and loss of its Redis, and whether data is lost; "
    "twin: the demo, compared with its simulation. "
    f"These have options of their own (bench NAME --help): {', '.join(STANDALONE)}."
)


def module_of(name: str) -> str:
    """The module of a benchmark."""
    return "benchmarks." + {**MEASURED, **STANDALONE}[name]


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark that the first argument names; return 1 if it missed a target, 2 if it could not run."""
    if arguments and arguments[0] in STANDALONE:
        command = [sys.executable, "-m", module_of(arguments[0]), *arguments[1:]]
        return subprocess.run(command, cwd=CHECKOUT, check=False).returncode
    options = _parser().parse_args(arguments)
    benchmark = import_module(module_of(options.name))
    if options.within:
        say(json.dumps(benchmark.measure(options.within)))
        return 0
    try:
        document = benchmark.run(options)
    except CannotStart as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except Interrupted:
        return 130
    say(json.dumps(document) if options.json else _text(benchmark.table(document), document))
    return 1 if document["failures"] else 0


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="manage.py bench", description=DESCRIPTION)
    parser.add_argument("name", choices=sorted([*MEASURED, *STANDALONE]))
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    longest = ", ".join(f"{name} {seconds:.0f}" for name, seconds in SECONDS.items())
    parser.add_argument("--seconds", type=float, help=f"per measurement (default: {longest})")
    parser.add_argument("--minutes", type=float, help="instead of --seconds")
    parser.add_argument("--workers", type=int, help="number of workers (default: fleet 100, history 64)")
    parser.add_argument("--iterations", type=int, help="iterations of the job (default: history 10000, leak 20000)")
    parser.add_argument("--jobs", type=int, default=0, help="number of jobs (default: fleet: workers / 100; jobs: 100)")
    parser.add_argument("--machines", type=int, default=0, help="fleet: number of machines (default: workers / 50)")
    parser.add_argument(
        "--hz", type=float, default=1.0, help="fleet: reports per second and worker (default: %(default)s)"
    )
    parser.add_argument("--relay", action="store_true", help="fleet: one connection per machine, as with join --relay")
    parser.add_argument("--webs", type=int, default=1, metavar="N", help="fleet: web processes (default: %(default)s)")
    parser.add_argument(
        "--deciders", type=int, default=1, metavar="N", help="fleet: decision processes (default: %(default)s)"
    )
    parser.add_argument(
        "--beyond", action="store_true", help="fleet: increase the rate until the control plane does not keep up"
    )
    parser.add_argument(
        "--tab-minutes",
        type=float,
        default=20.0,
        help="viewers: how long a page is watched, in minutes (default: %(default)s)",
    )
    parser.add_argument("--slope", action="store_true", help="fleet: fail if memory grows; needs 10 minutes")
    parser.add_argument(
        "--seed", type=int, default=1, help="faults, fuzz: seed of the random choices (default: %(default)s)"
    )
    parser.add_argument(
        "--frames", type=int, default=1_000_000, help="fuzz: number of frames over sockets (default: %(default)s)"
    )
    parser.add_argument(
        "--transfers", type=int, default=100_000, help="fuzz: number of frames to servers (default: %(default)s)"
    )
    parser.add_argument(
        "--rate", type=float, default=3_000.0, help="fuzz: maximum frames per second (default: %(default)s)"
    )
    parser.add_argument(
        "--database",
        choices=["sqlite", "postgres"],
        default="sqlite",
        help="faults: the database to use (default: %(default)s)",
    )
    parser.add_argument("--encrypt", action="store_true", help="chaos: machines encrypt parameters")
    parser.add_argument("--faults", type=int, default=10**9, help="faults: stop after this many faults")
    parser.add_argument("--kinds", nargs="*", default=[], help="faults: only kinds whose names contain one of these")
    parser.add_argument("--within", help=SUPPRESS)
    return parser


def _text(table: str, document: dict[str, Any]) -> str:
    return "\n".join([table, *(f"MISSED: {failure}" for failure in document["failures"])])
