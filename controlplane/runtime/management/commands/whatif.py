"""``manage.py whatif JOB``: simulates a recorded job under other policies, or on other machines."""

import json
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

import msgspec
from django.core.management.base import BaseCommand, CommandError
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from controlplane.policies.wording import seconds
from controlplane.runtime import autopilot
from controlplane.runtime.recorded_jobs import recent_log, recorded_log, simulated_run
from controlplane.simulator.errors import SimulationError
from controlplane.simulator.garbage_collection import rare_garbage_collection
from controlplane.simulator.recorded_run import read_run
from controlplane.simulator.tables import fit_sentence
from controlplane.simulator.whatif import (
    TWICE,
    Alternative,
    Ways,
    WhatIf,
    count_ways,
    fastest,
    fastest_of,
    slowest,
    slowest_of,
    what_if,
    what_if_simulated,
)
from controlplane.telemetry.job_outlines import recorded_job

REFUSED, INTERRUPTED = 2, 130
PLAIN_WIDTH = 110
FEW_WORKERS = 8
"""Up to this many workers, each is left out in turn; with more, only the slowest three."""
SLOWEST = 3
HEADS = ("instead", "iteration", "waiting", "samples", "time", "saved", "saved, by seed")


class Command(BaseCommand):
    help = (
        "Fit a model of a recorded job's machines, print how well it predicts the recorded iterations, and predict "
        "other policies, one worker more or less, or other bandwidth. A simulated run is simulated again on "
        "its scenario's machines. Exit code 2: no model can be fitted."
    )
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("job", type=int, help="its ID; it may still be running")
        parser.add_argument(
            "--policies", default="", help="policies, separated by commas; + joins those that are used together"
        )
        parser.add_argument(
            "--without",
            default=None,
            help=f"ranks to leave out, one at a time (default: the {SLOWEST} slowest; of {FEW_WORKERS} or less, each)",
        )
        parser.add_argument(
            "--like",
            default=None,
            help="ranks whose machine an additional worker copies, one at a time (default: the fastest)",
        )
        parser.add_argument(
            "--bandwidth",
            default=f"{TWICE:g}",
            help="factors for the bandwidth, separated by commas (default: %(default)s)",
        )
        parser.add_argument("--seeds", type=_at_least_2, default=8, help="seeds per variant (default: %(default)s)")
        parser.add_argument(
            "--last",
            type=_positive,
            default=None,
            help="fit the last N seconds only, under the current policies",
        )
        parser.add_argument("--request", default="", help=SUPPRESS)  # an autopilot's request, answered as JSON
        parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")

    def handle(self, *args: Any, job: int, **options: Any) -> None:
        try:
            with rare_garbage_collection():
                if options["request"]:
                    self.stdout.write(autopilot.answer(job, options["request"]))
                    return
                answer, changed_at = self._answer(job, options)
        except SimulationError as error:
            raise CommandError(str(error), returncode=REFUSED) from None
        except KeyboardInterrupt:
            raise CommandError("interrupted", returncode=INTERRUPTED) from None
        if options["json"]:
            self.stdout.write(json.dumps(msgspec.to_builtins(answer)))
        else:
            self._show(answer, changed_at)

    def _answer(self, job: int, options: dict[str, Any]) -> tuple[WhatIf, int | None]:
        """The answer, and the iteration of a change of policies from which on it does not apply, or None."""
        last, seeds = options["last"], options["seeds"]
        if (simulated := simulated_run(job)) is not None:
            own, workers = simulated.scenario, simulated.scenario.spec.workers
            ways = _ways(options, slowest_of(own, _count(workers)), [fastest_of(own)], list(range(workers)))
            with self._progress(job, 1, silent=options["json"]) as advance:
                return what_if_simulated(
                    job,
                    own,
                    simulated.policy,
                    ways,
                    iteration_s=simulated.iteration_s,
                    seeds=seeds,
                    progress=advance,
                ), None
        recorded_job(job)
        run = read_run(job, recorded_log(job) if last is None else recent_log(job, last))
        stay = [rank for rank in sorted(run.samples) if rank not in run.left_s]
        ways = _ways(options, slowest(run, _count(len(stay))), [fastest(run)], stay)
        with self._progress(job, count_ways(ways, run), silent=options["json"]) as advance:
            return what_if(run, ways, seeds=seeds, progress=advance), run.changed_at

    @contextmanager
    def _progress(self, job: int, total: int, *, silent: bool) -> Iterator[Callable[[str], None]]:
        columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}")
        console = Console(file=cast(IO[str], self.stderr))
        with Progress(*columns, TimeElapsedColumn(), console=console, disable=silent, transient=True) as bar:
            task = bar.add_task(f"job {job}", total=total)
            yield lambda _: bar.advance(task)

    def _show(self, answer: WhatIf, changed_at: int | None) -> None:
        self.stdout.write(f"job {answer.job}: {fit_sentence(answer.fit)}")
        if changed_at is not None:
            self.stdout.write(
                f"its policies were changed at iteration {changed_at}: only earlier iterations are compared, "
                "with its original policies as the baseline"
            )
        table = Table(
            title=f"{answer.iterations} iterations, {answer.seeds} seeds",
            caption="saved: fraction of the time of the recorded policies on the same model; samples: over theirs",
            box=SIMPLE_HEAD,
        )
        for at, head in enumerate(HEADS):
            table.add_column(head, justify="left" if at == 0 else "right", no_wrap=True)
        for one in (answer.recorded, *answer.alternatives):
            table.add_row(*_row(one, is_base=one is answer.recorded))
        width = None if self.stdout.isatty() else PLAIN_WIDTH
        Console(file=cast(IO[str], self.stdout), width=width).print(table)


def _row(one: Alternative, *, is_base: bool) -> tuple[str, ...]:
    name = f"{one.name} ({one.unfinished} seeds unfinished)" if one.unfinished else one.name
    saved = ("-", "-") if is_base else (f"{one.saved:.1%}", f"{one.saved_low:.1%} to {one.saved_high:.1%}")
    return name, seconds(one.iteration_s), f"{one.waiting:.0%}", f"{one.samples:.2f}", seconds(one.seconds), *saved


def _named(policies: str) -> list[str]:
    return [name for name in policies.split(",") if name]


def _ways(options: dict[str, Any], least: list[int], most: list[int], stay: list[int]) -> Ways:
    """The requested variations; by default, the job without each of ``least``, and with more like ``most``."""
    without, like = options["without"], options["like"]
    return Ways(
        policies=_named(options["policies"]),
        without=least if without is None else _ranks("without", without, stay if len(stay) > 1 else []),
        like=most if like is None else _ranks("like", like, stay),
        bandwidths=_times(options["bandwidth"]),
    )


def _count(workers: int) -> int:
    """The number of workers to leave out, one at a time; at least one worker stays."""
    return 0 if workers < 2 else workers if workers <= FEW_WORKERS else SLOWEST


def _ranks(option: str, value: str, stay: list[int]) -> list[int]:
    found = [rank for rank in value.split(",") if rank]
    if not all(rank.isdecimal() and int(rank) in stay for rank in found):
        known = ", ".join(map(str, stay)) or "none: at least one worker must remain"
        raise SimulationError(f"{option}: found {value!r}, expected ranks of workers present to the end: {known}")
    return [int(rank) for rank in found]


def _times(value: str) -> list[float]:
    """The factors of bandwidth."""
    try:
        found = [float(part) for part in value.split(",") if part]
    except ValueError:
        found = [0.0]
    if not all(0.0 < times < 1e6 for times in found):
        expected = "factors above 0 separated by commas, such as 2,0.5"
        raise SimulationError(f"bandwidth: found {value!r}, expected {expected}")
    return found


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise ArgumentTypeError(f"found {text!r}, expected a number of seconds, at least 1")
    return int(text)


def _at_least_2(text: str) -> int:
    if not text.isdigit() or int(text) < 2:
        raise ArgumentTypeError(f"found {text!r}, expected at least 2: one seed gives no uncertainty")
    return int(text)
