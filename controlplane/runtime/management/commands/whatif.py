"""``manage.py whatif JOB``: what a recorded job would have done under other policies, or without one of its workers."""

import json
from argparse import ArgumentParser, ArgumentTypeError
from typing import IO, Any, cast

import msgspec
from django.core.management.base import BaseCommand, CommandError
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from controlplane.policies.wording import seconds
from controlplane.runtime.recorded import NotRecorded, recent_log, recorded_job, recorded_log
from controlplane.simulator.collecting import collecting_seldom
from controlplane.simulator.errors import SimulationError
from controlplane.simulator.recorded import Run, read_run
from controlplane.simulator.whatif import Alternative, WhatIf, count_ways, slowest, what_if

REFUSED, INTERRUPTED = 2, 130
PLAIN_WIDTH = 110
FEW_WORKERS = 8
"""Of so many workers each is left out in turn; of more, the slowest three."""
SLOWEST = 3
HEADS = ("instead", "iteration", "waiting", "samples", "time", "saved", "saved, by seed")


class Command(BaseCommand):
    help = (
        "Learn how a recorded job's machines behaved, print how well that predicts its recorded iterations, and what "
        "other policies, or the job without a worker, would have done. Exit code 2: nothing can be learned from it."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("job", type=int, help="its number; it may still run")
        parser.add_argument("--policies", default="", help="registered ones, joined by + where they go together")
        parser.add_argument(
            "--without",
            default=None,
            help=f"ranks to leave out, one at a time (default: the {SLOWEST} slowest; of {FEW_WORKERS} or less, each)",
        )
        parser.add_argument("--seeds", type=_at_least_2, default=8, help="runs of each way (default: %(default)s)")
        parser.add_argument(
            "--last",
            type=_positive,
            default=None,
            help="learn from so many of its last seconds, under the policies that hold now",
        )
        parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")

    def handle(self, *args: Any, job: int, policies: str, without: str | None, seeds: int, **options: Any) -> None:
        as_json: bool = options["json"]
        last: int | None = options["last"]
        try:
            recorded_job(job)
            run = read_run(job, recorded_log(job) if last is None else recent_log(job, last))
            with collecting_seldom():
                answer = self._play(run, _named(policies), _ranks(without, run), seeds, silent=as_json)
        except (NotRecorded, SimulationError) as error:
            raise CommandError(str(error), returncode=REFUSED) from None
        except KeyboardInterrupt:
            raise CommandError("interrupted", returncode=INTERRUPTED) from None
        if as_json:
            self.stdout.write(json.dumps(msgspec.to_builtins(answer)))
        else:
            self._show(answer, run)

    def _play(self, run: Run, policies: list[str], ranks: list[int], seeds: int, *, silent: bool) -> WhatIf:
        columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}")
        console = Console(file=cast(IO[str], self.stderr))
        with Progress(*columns, TimeElapsedColumn(), console=console, disable=silent, transient=True) as bar:
            task = bar.add_task(f"job {run.job}", total=count_ways(policies, ranks, run))
            return what_if(
                run, policies=policies, without_ranks=ranks, seeds=seeds, progress=lambda _: bar.advance(task)
            )

    def _show(self, answer: WhatIf, run: Run) -> None:
        fit = answer.fit
        self.stdout.write(
            f"job {answer.job}: the model, learned from this very run, gives its {fit.compared} {fit.what} a mean of "
            f"{seconds(fit.predicted_s)}, recorded were {seconds(fit.recorded_s)} ({fit.error_of_mean:.1%} off); error "
            f"of single ones: median {fit.error_median:.1%}, 95th percentile {fit.error_p95:.1%}"
        )
        if run.changed_at is not None:
            self.stdout.write(
                f"its policies were changed at iteration {run.changed_at}: only what came before is compared, "
                "and the policies of its submission are what others are compared with"
            )
        table = Table(
            title=f"{answer.iterations} iterations, {answer.seeds} seeds",
            caption="saved: of the time that the recorded policies take on the same model; samples: over theirs",
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


def _ranks(without: str | None, run: Run) -> list[int]:
    """Those to leave out, one at a time; the last worker cannot be."""
    workers = run.spec.workers - len(run.left_s)
    if without is None:
        return slowest(run, workers if workers <= FEW_WORKERS else SLOWEST) if workers > 1 else []
    try:
        ranks = [int(rank) for rank in without.split(",") if rank]
    except ValueError:
        ranks = [-1]
    for rank in ranks:
        if rank not in run.samples or rank in run.left_s or workers < 2:
            stay = [str(rank) for rank in sorted(run.samples) if rank not in run.left_s]
            raise SimulationError(
                f"without: found {without!r}, expected ranks of {', '.join(stay)}, one of which stays"
            )
    return ranks


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise ArgumentTypeError(f"found {text!r}, expected a number of seconds, at least 1")
    return int(text)


def _at_least_2(text: str) -> int:
    if not text.isdigit() or int(text) < 2:
        raise ArgumentTypeError(f"found {text!r}, expected at least 2: one seed tells nothing of the uncertainty")
    return int(text)
