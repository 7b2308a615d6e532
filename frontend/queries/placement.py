"""Reads where the parameters are and were, from the last two placement decisions and what was measured since."""

from collections import defaultdict
from typing import Any

from controlplane.jobs.models import Decision, Job
from frontend.figures.rows import Holding, Placements, View
from frontend.queries.job import ServerLine, servers

ELEMENT_BYTES = 4
"""Parameters travel as float32."""


def placements(job: Job, view: View) -> Placements:
    """The placement that holds and the one before it; times are those of now in both."""
    rows = Decision.objects.filter(job=job, kind="set-placement").order_by("-incarnation", "-sequence")[:2]
    found = [row.payload for row in rows]
    lines = {line.index: line for line in servers(job)}
    return Placements(
        now=_holdings(found[0], lines) if found else (),
        before=_holdings(found[1], lines) if len(found) > 1 else (),
        version=found[0]["version"] if found else 0,
        policy=found[0]["policy"] if found else "",
    )


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
