"""Reads single exchanges with servers from the workers' reports in a job's stored log.

A simulated run stores no log, and the log of an old job is deleted: the results are then empty.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from controlplane.core.events import WorkerMessageReceived
from controlplane.jobs.models import Decision, Job
from controlplane.protocol.messages import IterationReport
from controlplane.runtime import log
from controlplane.telemetry.models import RawEvent

REPORTS = 400
"""Maximum number of reports that are read, the latest."""

EACH = 5
"""Number of last exchanges per worker and server over which the median is taken: a single one may be disturbed, and
many would include exchanges under an earlier placement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A range of a job's log, by row ids: after ``first``, and before ``last`` if given."""

    first: int
    last: int | None = None


def entry_of(job: Job, decision: Decision) -> int | None:
    """The row id of the log entry that caused ``decision``; None if it is not stored."""
    rows = RawEvent.objects.filter(job=job, incarnation=decision.incarnation, stream_id=decision.cause)
    return rows.values_list("pk", flat=True).first()


def last_reports(job: Job, stretch: Stretch | None = None) -> Iterator[tuple[int, IterationReport]]:
    """Ranks and their reports, latest first."""
    rows = RawEvent.objects.filter(job=job, kind="report")
    if stretch is not None:
        rows = rows.filter(pk__gt=stretch.first)
        rows = rows.filter(pk__lt=stretch.last) if stretch.last is not None else rows
    for payload in rows.order_by("-id").values_list("payload", flat=True)[:REPORTS]:
        event = log.decode_event(bytes(payload))
        if isinstance(event, WorkerMessageReceived) and isinstance(event.message, IterationReport):
            yield event.rank, event.message


def exchange_times(job: Job, stretch: Stretch, held: Mapping[int, int]) -> dict[int, tuple[float, float]]:
    """Median push and pull seconds by server, over the last exchanges that covered all its blocks.

    ``held``: bytes on each server. Exchanges of another size were made under another placement or during a move.
    """
    seen: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for rank, report in last_reports(job, stretch):
        for each in report.exchanges:
            if not each.is_probe and each.bytes == held.get(each.server) and len(seen[each.server, rank]) < EACH:
                seen[each.server, rank].append((each.push_s, each.pull_s))
    of_server: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for (server, _), times in seen.items():
        of_server[server] += times
    return {
        server: (median(push for push, _ in times), median(pull for _, pull in times))
        for server, times in of_server.items()
        if times
    }
