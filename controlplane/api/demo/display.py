"""Shows the progress of the runs: bars on a terminal, lines elsewhere."""

import time
from contextlib import ExitStack
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Column, Table

from controlplane.api.demo.record import Record
from controlplane.api.demo.verdict import Bar, Summary
from paceline.client.types import Job

LINE_EVERY_S = 5.0
"""How often a run reports its progress, where there is no terminal."""


class Display:
    """One bar per run; ``announce`` prints a line of text."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live = console.is_terminal
        self._progress = Progress(
            TextColumn("[bold]{task.description:6}", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=None, table_column=Column(ratio=1)),  # the remaining width
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[numbers]}", table_column=Column(no_wrap=True)),
            console=console,
            expand=True,
        )
        self._stack = ExitStack()
        self._task: TaskID | None = None
        self._label, self._total = "", 0
        self._printed, self._printed_at = -1, 0.0

    def __enter__(self) -> Self:
        if self._live:
            self._stack.enter_context(self._progress)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def announce(self, text: str) -> None:
        """Print a line of text."""
        self.console.print(text, highlight=False, soft_wrap=True)

    def begin(self, label: str, total: int) -> None:
        """Start the display of a run of ``total`` iterations."""
        self._label, self._total = label, total
        self._printed, self._printed_at = -1, time.monotonic()
        if self._live:
            self._task = self._progress.add_task(label, total=total, numbers="")

    def show(self, iteration: int, numbers: str, *, last: bool = False) -> None:
        """Show the progress of the run."""
        if self._task is not None:
            self._progress.update(self._task, completed=iteration, numbers=numbers)
            if last:
                self._progress.stop_task(self._task)
        elif self._printed != iteration and (last or time.monotonic() - self._printed_at >= LINE_EVERY_S):
            self._printed, self._printed_at = iteration, time.monotonic()
            self.announce(f"{self._label:8} {iteration}/{self._total}  {numbers}")


def numbers(job: Job, record: Record) -> str:
    """The state of a run, in one line."""
    if not record.iterations:
        return job.waiting.sentence if job.waiting else job.awaited or job.state
    parts = [f"loss {record.recent('loss'):.3f}"]
    if record.accuracy:
        parts.append(f"accuracy {record.final_accuracy():.3f}")
    parts.append(f"{1000 * (record.recent('iteration_s') or 0.0):.0f} ms/iteration")
    parts.append(f"{record.recent_lost_share():.0%} lost")
    return "  ".join(parts)


def closing_table(summaries: list[Summary], target: float, factor: float) -> Table:
    """Both runs side by side, and the speed-up."""
    table = Table(title=f"With LB-BSP, iterations are {factor:.2f} times as fast as with BSP", title_justify="left")
    table.add_column("")
    for heading in (
        f"time to {target:.0%} accuracy",
        "mean iteration",
        "lost time",
        "final accuracy",
        "speed-up",
    ):
        table.add_column(heading, justify="right")
    base = summaries[0].mean_iteration_s
    for row in summaries:
        reached = "not reached" if row.seconds_to_target is None else f"{row.seconds_to_target:.1f} s"
        table.add_row(
            row.label,
            reached,
            f"{1000 * row.mean_iteration_s:.0f} ms",
            f"{row.lost_share:.0%}",
            f"{row.final_accuracy:.4f}",
            f"{base / row.mean_iteration_s:.2f}x",
        )
    return table


def chosen_table(summaries: list[Summary], target: float) -> Table:
    """Both runs side by side, by time."""
    table = Table(title=f"{summaries[1].label} compared with plain BSP", title_justify="left")
    table.add_column("")
    for heading in (f"to {target:.0%} accuracy", "total time", "updates", "samples", "lost time", "final accuracy"):
        table.add_column(heading, justify="right")
    for row in summaries:
        reached = "not reached" if row.seconds_to_target is None else f"{row.seconds_to_target:.1f} s"
        table.add_row(
            row.label,
            reached,
            f"{row.seconds:.1f} s",
            str(row.updates),
            str(row.samples),
            f"{row.lost_share:.0%}",
            f"{row.final_accuracy:.4f}",
        )
    return table


def verdict_line(bar: Bar) -> str:
    """One check as a line, marked by colour and word."""
    return f"{'[green]holds[/] ' if bar.holds else '[bold red]FAILS[/] '} {bar.sentence}"
