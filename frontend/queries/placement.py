"""Reads where the parameters are and were, from the last two placement decisions and what was measured since."""

from collections import defaultdict
from typing import Any

import numpy as np

from controlplane.jobs.models import Decision, Job
from controlplane.telemetry.history import Span, read_columns
from frontend.figures.rows import Holding, Placements, View
from frontend.queries.job import ServerLine, servers

ELEMENT_BYTES = 4
"""Parameters travel as float32."""

RATED = 20
"""Iterations, the last, over which updates are counted."""


def placements(job: Job, view: View) -> Placements:
    """The placement that holds and the one before it; times are those of now in both."""
    found = latest_placements(job, 2)
    lines = {line.index: line for line in servers(job)}
    return Placements(
        now=_holdings(found[0], lines) if found else (),
        before=_holdings(found[1], lines) if len(found) > 1 else (),
        version=found[0]["version"] if found else 0,
        policy=found[0]["policy"] if found else "",
        updates_per_s=updates_per_s(job) if found else None,
    )


def latest_placements(job: Job, count: int) -> list[dict[str, Any]]:
    """The last placement decisions, the latest first."""
    rows = Decision.objects.filter(job=job, kind="set-placement").order_by("-incarnation", "-sequence")
    return list(rows.values_list("payload", flat=True)[:count])


def updates_per_s(job: Job) -> float | None:
    """Updates that all workers pushed per second over the job's last iterations; each goes to every block."""
    found = list(read_columns(job.pk, ("at_ms",), Span(first=max(0, job.iteration - RATED))).values())
    if not found:
        return None
    iteration, at_ms = (np.concatenate([each[name] for each in found]) for name in ("iteration", "at_ms"))
    oldest = iteration == iteration.min()
    # The oldest iteration only tells when the clock of this window started.
    took_s = (at_ms.max() - at_ms[oldest].max()) / 1000
    return float((~oldest).sum() / took_s) if took_s > 0 else None


def _holdings(payload: dict[str, Any], lines: dict[int, ServerLine]) -> tuple[Holding, ...]:
    blocks: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for block in payload["blocks"]:
        blocks[block["server"]].append((block["index"], (block["stop"] - block["start"]) * ELEMENT_BYTES))
    return tuple(_holding(server, held, lines.get(server)) for server, held in sorted(blocks.items()))


def _holding(server: int, held: list[tuple[int, int]], line: ServerLine | None) -> Holding:
    return Holding(
        server=server,
        blocks=tuple(held),
        push_s=line.push_s if line else None,
        pull_s=line.pull_s if line else None,
    )
