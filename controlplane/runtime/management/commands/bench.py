"""``manage.py bench NAME``: measures on this machine, prints figures and ratios, and fails below the bars."""

import json
import subprocess
import sys
from argparse import SUPPRESS, ArgumentParser
from importlib import import_module
from typing import Any, Final

from django.core.management.base import BaseCommand

from controlplane.runtime.bench import chaos, hostile, leak
from controlplane.runtime.bench.place import Options, Place
from controlplane.runtime.bench.plane import Bench, running_bench
from controlplane.runtime.embedded.control_plane import CHECKOUT, MANAGE
from controlplane.runtime.embedded.errors import CannotStart, Interrupted
from controlplane.runtime.embedded.processes import run_command

SECONDS: Final = {
    "chaos": 180.0,
    "hostile": 6.0,
    "leak": 0.0,
    "decisions": 5.0,
    "fleet": 180.0,
    "jobs": 30.0,
    "viewers": 120.0,
}
"""The benches of a running control plane, and how long each measures unless told otherwise."""

ITERATIONS: Final = {"history": 10_000, "leak": 20_000}
"""Of those of one job, how long it is unless told otherwise."""

VIEWERS: Final = "viewers"
"""The one of them that also looks at a page."""

FAULTS: Final = "faults"
"""The one that starts and strikes a control plane of its own."""

DATABASE: Final = {"history": "history", "ingest": "writing"}
"""Those of the database alone, with their modules."""

STANDALONE: Final = (
    "allreduce",
    "dataplane",
    "engine",
    "memory",
    "pages",
    "prediction",
    "prediction-cost",
    "simulator",
    "stragglers",
    "training",
    "transport",
)
"""Those that need no control plane around them, or start one of their own: modules of ``benchmarks`` by their names,
with options of their own."""

TWIN: Final = "twin"
"""The demo against the simulator."""

BESIDES_S: Final = 900.0
"""What starting, going beyond and counting may take on top."""


class Command(BaseCommand):
    """Starts a private control plane, measures it from a process of its own, and prints what came of it."""

    help = (
        "Measure the control plane on this machine. decisions: from a report to orders, against bare echo; "
        "fleet: many workers, each reporting once per second; jobs: a hundred jobs on one Celery process, then on two; "
        "chaos: kills, stops and cuts while a job trains; leak: memory over a long job; "
        "hostile: strangers and a machine that lies, while others train; "
        "viewers: what fifty open pages cost, how soon a page shows a report, and the memory of its tab; "
        "history: reading a long job, against raw rows; ingest: writing rows, against a bare executemany; "
        "faults: a control plane that is killed, paused, cut off and forgets, and whether anything is lost; "
        "twin: the demo, against the simulator's prediction of it. "
        f"With options of their own (bench NAME --help): {', '.join(STANDALONE)}."
    )
    requires_system_checks = []

    def run_from_argv(self, argv: list[str]) -> None:
        """Hand everything behind the name of a standalone benchmark to that."""
        name, rest = "".join(argv[2:3]), argv[3:]
        if name not in STANDALONE:
            super().run_from_argv(argv)
            return
        command = [sys.executable, "-m", module_of(name), *rest]
        sys.exit(subprocess.run(command, cwd=CHECKOUT, check=False).returncode)

    def add_arguments(self, parser: ArgumentParser) -> None:
        """What to measure, for how long, and how to print it."""
        parser.add_argument("name", choices=sorted([*SECONDS, *DATABASE, FAULTS, TWIN]))
        parser.add_argument("--json", action="store_true", help="print one JSON document")
        longest = ", ".join(f"{name} {seconds:.0f}" for name, seconds in SECONDS.items())
        parser.add_argument("--seconds", type=float, help=f"per measurement (default: {longest})")
        parser.add_argument("--minutes", type=float, help="instead of --seconds")
        parser.add_argument("--workers", type=int, help="fleet: how many (default: 100); history: of the job (64)")
        lengths = ", ".join(f"{name} {iterations}" for name, iterations in ITERATIONS.items())
        parser.add_argument("--iterations", type=int, help=f"of the job (default: {lengths})")
        parser.add_argument("--jobs", type=int, default=0, help="fleet: workers / 100; jobs: 100")
        parser.add_argument("--beyond", action="store_true", help="fleet: go on faster, until it does not keep up")
        parser.add_argument(
            "--tab-minutes", type=float, default=10.0, help="viewers: how long a page is watched (default: %(default)s)"
        )
        parser.add_argument("--slope", action="store_true", help="fleet: memory must be flat; takes 10 minutes to tell")
        parser.add_argument("--seed", type=int, default=1, help="faults: which ones, and when (default: %(default)s)")
        parser.add_argument("--database", choices=["sqlite", "postgres"], default="sqlite", help="faults: under it")
        parser.add_argument("--faults", type=int, default=10**9, help="faults: stop after so many")
        parser.add_argument(
            "--kinds", nargs="*", default=[], help="faults: only those whose names contain one of these"
        )
        parser.add_argument("--within", help=SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        """Measure; exit code 1 if a bar was missed, 2 if it could not be measured."""
        bench = import_module(f"controlplane.runtime.bench.{DATABASE.get(options['name'], options['name'])}")
        if options["within"] and options["name"] == FAULTS:
            self.stdout.write(json.dumps(bench.measure()))
            return
        if options["within"]:
            self.stdout.write(json.dumps(bench.measure(Place.decode(options["within"]))))
            return
        try:
            document = _document_of(bench, options)
        except CannotStart as error:
            self.stderr.write(str(error))
            sys.exit(2)
        except Interrupted:
            sys.exit(130)
        self.stdout.write(json.dumps(document) if options["json"] else _text(bench.table(document), document))
        if document["failures"]:
            sys.exit(1)


def module_of(name: str) -> str:
    """Of a standalone benchmark."""
    return f"benchmarks.{name.replace('-', '_')}"


def _document_of(bench: Any, given: dict[str, Any]) -> dict[str, Any]:
    if given["name"] == FAULTS:
        return _of_faults(bench, given)
    if given["name"] == TWIN:
        compared: dict[str, Any] = bench.measure()
        return compared
    return _of_the_database(bench, given) if given["name"] in DATABASE else _of_a_plane(given)


def _of_faults(bench: Any, given: dict[str, Any]) -> dict[str, Any]:
    minutes = given["minutes"] or (given["seconds"] or 300.0) / 60
    chosen = {name: given[name] for name in ("seed", "faults", "kinds")}
    document: dict[str, Any] = bench.run(
        lambda ground: bench.Asked(ground=ground, minutes=minutes, **chosen), postgres=given["database"] == "postgres"
    )
    return document


def _of_the_database(bench: Any, given: dict[str, Any]) -> dict[str, Any]:
    sizes = {"workers": given["workers"] or 64, "iterations": _iterations(given)} if given["name"] == "history" else {}
    document: dict[str, Any] = bench.measure(**sizes).document()
    return document


def _iterations(given: dict[str, Any]) -> int:
    return int(given["iterations"] or ITERATIONS[given["name"]])


def _of_a_plane(given: dict[str, Any]) -> dict[str, Any]:
    seconds = given["minutes"] * 60 if given["minutes"] else given["seconds"] or SECONDS[given["name"]]
    chosen = {name: given[name] for name in ("jobs", "beyond", "slope")}
    tab_s = given["tab_minutes"] * 60 if given["name"] == VIEWERS else 0.0
    options = Options(seconds=seconds, workers=given["workers"] or 100, tab_s=tab_s, **chosen)
    with running_bench() as bench:
        if given["name"] == "chaos":
            return chaos.run(bench, seconds=seconds, seed=given["seed"])
        if given["name"] == "hostile":
            return hostile.run(bench, seconds=seconds)
        if given["name"] == "leak":
            return leak.run(bench, iterations=_iterations(given), seed=given["seed"])
        return _document(given["name"], bench, options)


def _document(name: str, bench: Bench, options: Options) -> dict[str, Any]:
    if name != "jobs":
        return _measure(name, bench, options)
    runs = [_measure(name, bench, options)]
    bench.add_decisions()
    runs.append(_measure(name, bench, options))
    return {"runs": runs, "failures": [failure for run in runs for failure in run["failures"]]}


def _measure(name: str, bench: Bench, options: Options) -> dict[str, Any]:
    """Measure in a process with the settings of the measured control plane."""
    place = Place(
        base=bench.base,
        echo=bench.echo,
        processes=bench.processes,
        echo_process=bench.echo_process,
        options=options,
    )
    command = [*MANAGE, "bench", name, "--within", place.encode()]
    limit_s = 4 * options.seconds + options.tab_s + BESIDES_S
    document: dict[str, Any] = json.loads(
        run_command("the measurement", command, environment=bench.environment, folder=CHECKOUT, seconds=limit_s)
    )
    return document


def _text(table: str, document: dict[str, Any]) -> str:
    return "\n".join([table, *(f"MISSED: {failure}" for failure in document["failures"])])
