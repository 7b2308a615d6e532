"""Reads the current and the previous placement, with the exchange times under each."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from controlplane.jobs.models import Decision, Job
from controlplane.protocol.orders import ELEMENT_BYTES
from frontend.figures.rows import Holding, Placements, View, Worth
from frontend.queries.exchanges import Stretch, entry_of, exchange_times
from frontend.queries.history import History, together
from frontend.queries.job import servers

RATED = 20
"""Number of last iterations over which updates are counted."""

LOOKED_AT = 20
"""Number of last decisions that are read: consecutive ones that moved nothing count as one."""

Held = dict[int, list[tuple[int, int]]]
"""Index and bytes of each block, by server."""

Times = Mapping[int, tuple[float, float]]
"""Push and pull seconds of one worker's exchange, by server."""


def placements(job: Job, view: View) -> Placements:
    """The current placement and the previous one, each with the exchange times under it."""
    rows = Decision.objects.filter(job=job, kind="set-placement").order_by("-incarnation", "-sequence")
    found = list(rows[:LOOKED_AT])
    if not found:
        return Placements(now=(), before=(), version=0, policy="")
    now = found[0].payload
    moved = next((place for place, row in enumerate(found) if row.payload["blocks"] != now["blocks"]), 0)
    since = found[moved - 1]  # the first decision with the current block positions
    entry, held = entry_of(job, since), _held(now)
    before, unknown = _times_before(job, found[moved], entry) if moved else ({}, "")
    return Placements(
        now=_holdings(held, _times_now(job, held, entry)),
        before=_holdings(_held(found[moved].payload), before) if moved else (),
        before_unknown=unknown,
        worth=_worth(job, since) if moved else None,
        version=now["version"],
        policy=now["policy"],
        updates_per_s=updates_per_s(job),
    )


def latest_placements(job: Job, count: int) -> list[dict[str, Any]]:
    """The last placement decisions, latest first."""
    rows = Decision.objects.filter(job=job, kind="set-placement").order_by("-incarnation", "-sequence")
    return list(rows.values_list("payload", flat=True)[:count])


def updates_per_s(job: Job) -> float | None:
    """Updates per second of all workers over the job's last iterations; each goes to every block."""
    found = History(job).latest(("at_ms",), RATED)
    if not found:
        return None
    iteration, at_ms = together(found, "iteration", "at_ms")
    oldest = iteration == iteration.min()
    # The oldest iteration only marks the start of the window.
    took_s = (at_ms.max() - at_ms[oldest].max()) / 1000
    return float((~oldest).sum() / took_s) if took_s > 0 else None


def _times_now(job: Job, held: Held, since: int | None) -> Times:
    """Times from single exchanges since it took effect; if none are stored, means of the workers' last ones."""
    if since is not None:
        return exchange_times(job, Stretch(first=since), _sizes(held))
    return {
        line.index: (line.push_s, line.pull_s)
        for line in servers(job)
        if line.push_s is not None and line.pull_s is not None
    }


def _times_before(job: Job, row: Decision, moved: int | None) -> tuple[Times, str]:
    """Exchange times under the placement ``row`` up to the entry ``moved``, or why they are not known."""
    began = entry_of(job, row)
    if moved is None or began is None:
        return {}, "simulated runs keep only the latest exchanges" if job.simulation_id else "the job's log was deleted"
    times = exchange_times(job, Stretch(first=began, last=moved), _sizes(_held(row.payload)))
    return times, "" if times else "no worker completed one"


def _worth(job: Job, moved: Decision) -> Worth | None:
    """The engine's measurement right after a placement change."""
    rows = Decision.objects.filter(job=job, kind="measure-placement", sequence__gt=moved.sequence)
    payloads = rows.order_by("sequence").values_list("payload", flat=True)[:LOOKED_AT]
    found = next((each for each in payloads if each["version"] == moved.payload["version"]), None)
    if found is None:
        return None
    return Worth(before_s=found["before_s"], predicted_s=found["predicted_s"], after_s=found["after_s"])


def _held(placed: dict[str, Any]) -> Held:
    held: Held = defaultdict(list)
    for block in placed["blocks"]:
        held[block["server"]].append((block["index"], (block["stop"] - block["start"]) * ELEMENT_BYTES))
    return held


def _sizes(held: Held) -> dict[int, int]:
    return {server: sum(size for _, size in blocks) for server, blocks in held.items()}


def _holdings(held: Held, times: Times) -> tuple[Holding, ...]:
    unknown = (None, None)
    return tuple(
        Holding(server=server, blocks=tuple(blocks), push_s=push_s, pull_s=pull_s)
        for server, blocks in sorted(held.items())
        for push_s, pull_s in [times.get(server, unknown)]
    )
