"""``manage.py simulate SCENARIO``: simulates a job under several policies, in virtual time.

With ``--queued`` it runs simulations requested over REST, as the control plane's processes do, and any other machine
that reaches its database.
"""

import json
import signal
import sys
from argparse import ArgumentParser
from pathlib import Path
from threading import Event
from typing import IO, Any, cast

from django.core.management.base import BaseCommand, CommandError
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from controlplane.runtime.recorded_jobs import learned_run
from controlplane.simulator.errors import SimulationError
from controlplane.simulator.garbage_collection import rare_garbage_collection
from controlplane.simulator.google_trace import loads_of, under
from controlplane.simulator.outcome import Outcome
from controlplane.simulator.recorded_run import Run, job_of, scenario_of
from controlplane.simulator.running import compare
from controlplane.simulator.scenario import Scenario
from controlplane.simulator.scenarios import find, scenarios
from controlplane.simulator.tables import HEADS, against_paper, against_recorded, endings, ratio, rows
from controlplane.simulator.variations import Variation, varied
from controlplane.telemetry.simulations import simulations_run
from controlplane.telemetry.trace_files import read_trace

NOT_FINISHED, REFUSED, INTERRUPTED = 1, 2, 130
PLAIN_WIDTH = 110


class Command(BaseCommand):
    help = (
        "Simulate a scenario under several policies. Exit code 0: every run finished; 1: one did not; "
        "2: the scenario or a policy is invalid, or a run failed."
    )
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "scenario",
            nargs="?",
            help="name of a scenario, or job-7 for the machines recorded in job 7; without it, list all scenarios",
        )
        parser.add_argument(
            "--policies",
            default="",
            help="policies of the scenario, or registered ones joined by + (default: all of the scenario's)",
        )
        parser.add_argument(
            "--trace",
            type=Path,
            metavar="FILE",
            help="use the machine load in this file of the public cluster-usage traces "
            "(table task_usage, .csv or .csv.gz)",
        )
        parser.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")
        parser.add_argument(
            "--workers", type=int, help="number of workers: additional ones copy the fastest; fewer drop the slowest"
        )
        parser.add_argument("--bandwidth", type=float, help="factor for the bandwidth of all links and servers")
        parser.add_argument("--global-batch", type=int, help="samples per iteration over all workers")
        parser.add_argument(
            "--queued", action="store_true", help="run the simulations queued over REST, one after another, then exit"
        )
        parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")

    def handle(
        self, *args: Any, scenario: str | None, policies: str, seed: int, trace: Path | None, **options: Any
    ) -> None:
        as_json: bool = options["json"]
        if options["queued"]:
            self._run_queued()
            return
        if scenario is None:
            self._list(as_json=as_json)
            return
        try:
            changed = {name: options[name] for name in Variation.__struct_fields__}
            variation, job = Variation(**changed), job_of(scenario)
            run = learned_run(job) if job is not None else None
            found = varied(find(scenario) if run is None else scenario_of(run), variation)
            if trace is not None:
                found = under(found, loads_of(read_trace(trace)))
            with rare_garbage_collection():
                names = [name for name in policies.split(",") if name]
                recorded = run if trace is None and variation == Variation() else None
                outcomes = self._run(found, names, seed, recorded, silent=as_json)
        except SimulationError as error:
            raise CommandError(str(error), returncode=REFUSED) from None
        except KeyboardInterrupt:
            raise CommandError("interrupted", returncode=INTERRUPTED) from None
        self._show(found, outcomes, as_json=as_json)
        if any(outcome.state != "succeeded" for outcome in outcomes):
            sys.exit(NOT_FINISHED)

    def _run_queued(self) -> None:
        """Run queued simulations. On a signal to end, the current one is returned to the queue."""
        stopping = Event()
        signal.signal(signal.SIGTERM, lambda *_: stopping.set())
        with rare_garbage_collection():
            simulations_run(stopping.is_set, learned_run)

    def _list(self, *, as_json: bool) -> None:
        found = list(scenarios().values())
        if as_json:
            named = [{"name": s.name, "title": s.title, "policies": list(s.policies)} for s in found]
            self.stdout.write(json.dumps(named))
        else:
            widest = max(len(one.name) for one in found)
            self.stdout.write("\n".join(f"{one.name:{widest}}  {one.title}" for one in found))

    def _run(
        self, scenario: Scenario, policies: list[str], seed: int, recorded: Run | None, *, silent: bool
    ) -> list[Outcome]:
        names = policies or list(scenario.policies)
        columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}")
        console = Console(file=cast(IO[str], self.stderr))
        with Progress(*columns, TimeElapsedColumn(), console=console, disable=silent, transient=True) as bar:
            task = bar.add_task(scenario.name, total=len(names))
            outcomes = []
            for outcome in compare(scenario, names, seed=seed, run=recorded):
                outcomes.append(outcome)
                bar.advance(task)
        return outcomes

    def _show(self, scenario: Scenario, outcomes: list[Outcome], *, as_json: bool) -> None:
        if as_json:
            paper = [
                {"where": one.where, "says": one.statement, "policy": one.policy, "metric": one.metric}
                | {"paper": one.ratio, "here": ratio(scenario, one, outcomes)}
                for one in scenario.paper
            ]
            document = {
                "scenario": scenario.name,
                "baseline": scenario.baseline,
                "outcomes": [outcome.document() for outcome in outcomes],
                "paper": paper,
            }
            self.stdout.write(json.dumps(document))
            return
        table = Table(
            title=scenario.title, caption=f"against: iteration time relative to {scenario.baseline}", box=SIMPLE_HEAD
        )
        for at, head in enumerate(HEADS):
            table.add_column(head, justify="left" if at == 0 else "right", no_wrap=at == 0)
        for row in rows(scenario, outcomes):
            table.add_row(*row)
        width = None if self.stdout.isatty() else PLAIN_WIDTH
        Console(file=cast(IO[str], self.stdout), width=width).print(table)
        for sentence in (
            *endings(scenario, outcomes),
            *against_paper(scenario, outcomes),
            *against_recorded(outcomes),
        ):
            self.stdout.write(sentence)
