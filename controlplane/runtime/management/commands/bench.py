"""``manage.py bench NAME``: measures on this machine, prints figures and ratios, and fails below the bars."""

import json
import sys
from argparse import SUPPRESS, ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from controlplane.runtime.bench.plane import Bench, running_bench
from controlplane.runtime.embedded.control_plane import CHECKOUT, MANAGE
from controlplane.runtime.embedded.errors import CannotStart, Interrupted
from controlplane.runtime.embedded.processes import run_command

BENCHES = ("decisions",)


class Command(BaseCommand):
    """Starts a private control plane, measures it from a process of its own, and prints what came of it."""

    help = "Measure the control plane on this machine: decisions = from a report to orders, against bare echo."
    requires_system_checks = []
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        """What to measure, for how long, and how to print it."""
        parser.add_argument("name", choices=BENCHES)
        parser.add_argument("--json", action="store_true", help="print one JSON document")
        parser.add_argument("--seconds", type=float, default=5.0, help="per measurement (default: %(default)s)")
        parser.add_argument("--within", nargs=2, metavar=("BASE", "ECHO"), help=SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        """Measure; exit code 1 if a bar was missed, 2 if it could not be measured."""
        if options["within"]:
            self._measure(*options["within"], seconds=options["seconds"])
            return
        try:
            with running_bench() as bench:
                document = _measure_within(bench, options["seconds"])
        except CannotStart as error:
            self.stderr.write(str(error))
            sys.exit(2)
        except Interrupted:
            sys.exit(130)
        self.stdout.write(json.dumps(document) if options["json"] else table(document))
        if document["failures"]:
            sys.exit(1)

    def _measure(self, base: str, echo: str, *, seconds: float) -> None:
        from controlplane.runtime.bench.decisions import measure  # needs the measured plane's database

        self.stdout.write(json.dumps(measure(base, echo, seconds=seconds).document()))


def _measure_within(bench: Bench, seconds: float) -> dict[str, Any]:
    """Measure in a process with the settings of the measured control plane."""
    command = [*MANAGE, "bench", "decisions", "--seconds", str(seconds), "--within", bench.base, bench.echo]
    document: dict[str, Any] = json.loads(
        run_command("the measurement", command, environment=bench.environment, folder=CHECKOUT)
    )
    return document


def table(document: dict[str, Any]) -> str:
    """The figures, for people."""
    lines = [f"{'':22}{'p50':>10}{'p99':>10}{'messages/s':>14}"]
    for title, figures in (
        ("bare echo, 1", document["echo_one"]),
        ("full path, 1", document["path_one"]["figures"]),
        ("bare echo, 64", document["echo_crowd"]),
        ("full path, 64", document["path_crowd"]["figures"]),
    ):
        p50, p99, rate = figures["p50_ms"], figures["p99_ms"], figures["messages_per_s"]
        lines.append(f"{title:22}{p50:7.3f} ms{p99:7.3f} ms{rate:14,.0f}")
    lines.append(f"round trip of one worker: {document['latency_ratio']:.2f} times bare echo's (bar: at most 4)")
    lines.append(f"messages/s of 64 workers: {document['throughput_ratio']:.2f} of bare echo's (bar: at least 0.3)")
    for path in (document["path_one"], document["path_crowd"]):
        lines.append(
            f"{path['figures']['connections']} workers: {path['reports_sent']:,} reports sent,"
            f" {path['report_rows']:,} report rows, {path['decision_rows']:,} decision rows,"
            f" the last {path['copied_after_s']:.2f} s after the end"
        )
    return "\n".join([*lines, *(f"MISSED: {failure}" for failure in document["failures"])])
