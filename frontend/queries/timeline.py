"""Reads a few iterations of some workers one by one, for the timeline and its totals."""

from collections.abc import Iterator

from controlplane.jobs.models import Job
from controlplane.protocol.spec import parse_spec
from controlplane.telemetry.columns import Block
from controlplane.telemetry.history import Span, newest_iteration, read_columns
from controlplane.telemetry.metrics import ITERATION
from frontend.figures.rows import Stay, View, Window
from frontend.queries.figures import slowest_and_fastest

ITERATIONS = 10
MAX_ITERATIONS = 20
"""With 16 workers and five phases, a redraw within 50 ms."""


def window(job: Job, view: View) -> Window:
    """The iterations that the view asks for, or the latest; never past either end."""
    roster = parse_spec(job.spec).workers
    newest = newest_iteration(job.pk)
    if newest is None:
        return Window(stays=(), ranks=(), roster=roster, first=0, last=0, newest=0)
    count = min(view.count or ITERATIONS, MAX_ITERATIONS)
    latest = max(0, newest - count + 1)
    first = latest if view.first is None else min(view.first, latest)
    ranks = view.ranks or slowest_and_fastest(job, roster)
    span = Span(ranks=ranks, first=first, last=first + count)
    found = read_columns(job.pk, ("at_ms", "samples", *ITERATION), span)
    return Window(
        stays=tuple(stay for rank in sorted(found) for stay in _stays(job, rank, found[rank])),
        ranks=tuple(sorted(found)),
        roster=roster,
        first=first,
        last=min(newest, first + count - 1),
        newest=newest,
    )


def _stays(job: Job, rank: int, block: Block) -> Iterator[Stay]:
    started_s = (job.started_at or job.created_at).timestamp()
    names = ("iteration", "at_ms", "samples", *ITERATION)
    for row in zip(*(block[name].tolist() for name in names), strict=True):
        iteration, at_ms, samples, compute_s, push_s, pull_s, waiting_s, coordination_s = row
        yield Stay(
            rank=rank,
            iteration=iteration,
            ended_s=at_ms / 1000 - started_s,
            compute_s=compute_s,
            push_s=push_s,
            pull_s=pull_s,
            waiting_s=waiting_s,
            coordination_s=coordination_s,
            samples=samples,
        )
