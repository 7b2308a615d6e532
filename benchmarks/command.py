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
    "Measure on this machine. decisions: from a report to orders, against bare echo; "
    "fleet: many workers, each reporting at a steady rate; jobs: a hundred jobs on one Celery process, then on two; "
    "chaos: kills, stops and cuts while a job trains; leak: memory over a long job; "
    "hostile: anonymous clients and a malicious machine, while other jobs train; "
    "fuzz: mutated frames over all sockets and the data plane, by a seed, while another job trains; "
    "viewers: what fifty open pages cost, how soon a page shows a report, and the memory of its tab; "
    "history: reading a long job, against raw rows; ingest: writing rows, against a bare executemany; "
    "faults: a control plane that is killed, paused, cut off and loses its Redis, and whether anything is lost; "
    "twin: the demo, against the simulator's prediction of it. "
    f"With options of their own (bench NAME --help): {', '.join(STANDALONE)}."
)


def module_of(name: str) -> str:
    """The module of a benchmark."""
    return "benchmarks." + {**MEASURED, **STANDALONE}[name]


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark that the first argument names; 1 if it missed a bar, 2 if it could not be measured."""
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
    parser.add_argument("--workers", type=int, help="fleet: how many (default: 100); history: of the job (64)")
    parser.add_argument("--iterations", type=int, help="of the job (default: history 10000, leak 20000)")
    parser.add_argument("--jobs", type=int, default=0, help="fleet: workers / 100; jobs: 100")
    parser.add_argument("--machines", type=int, default=0, help="fleet: on how many (default: 50 workers on each)")
    parser.add_argument("--hz", type=float, default=1.0, help="fleet: reports per second and worker (%(default)s)")
    parser.add_argument("--relay", action="store_true", help="fleet: one connection per machine, as with join --relay")
    parser.add_argument("--webs", type=int, default=1, metavar="N", help="fleet: web processes (default: %(default)s)")
    parser.add_argument(
        "--deciders", type=int, default=1, metavar="N", help="fleet: decision processes (default: %(default)s)"
    )
    parser.add_argument("--beyond", action="store_true", help="fleet: go on faster, until it does not keep up")
    parser.add_argument(
        "--tab-minutes", type=float, default=20.0, help="viewers: how long a page is watched (default: %(default)s)"
    )
    parser.add_argument("--slope", action="store_true", help="fleet: memory must be flat; takes 10 minutes to tell")
    parser.add_argument("--seed", type=int, default=1, help="faults, fuzz: which ones, and when (default: %(default)s)")
    parser.add_argument("--frames", type=int, default=1_000_000, help="fuzz: over sockets (default: %(default)s)")
    parser.add_argument("--transfers", type=int, default=100_000, help="fuzz: to servers (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=3_000.0, help="fuzz: most in a second (default: %(default)s)")
    parser.add_argument("--database", choices=["sqlite", "postgres"], default="sqlite", help="faults: under it")
    parser.add_argument("--encrypt", action="store_true", help="chaos: machines encrypt parameters")
    parser.add_argument("--faults", type=int, default=10**9, help="faults: stop after so many")
    parser.add_argument("--kinds", nargs="*", default=[], help="faults: only those whose names contain one of these")
    parser.add_argument("--within", help=SUPPRESS)
    return parser


def _text(table: str, document: dict[str, Any]) -> str:
    return "\n".join([table, *(f"MISSED: {failure}" for failure in document["failures"])])
