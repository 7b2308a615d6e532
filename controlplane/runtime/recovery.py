"""Recovers a job after a change of its log: Redis lost part or all of it, or a replay decides differently.

The engine is rebuilt from the last snapshot, then the entries in the database, then the rest of the stream. Then a new
incarnation starts: senders resend what is not durable, and orders are sent again. Answers to surviving entries that
neither Redis nor the database has are written again, so that the decision log has no gap. A job that cannot be rebuilt
is paused with the reason and retried.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog
from django.db import transaction

from controlplane.core.commands import AnyCommand
from controlplane.core.engine import ENGINE_VERSION
from controlplane.core.events import Entry, IncarnationBegan
from controlplane.core.states import JOB_OVER
from controlplane.jobs.models import Job
from controlplane.protocol.cleaning import clean_text
from controlplane.protocol.orders import Orders
from controlplane.runtime import log, snapshots, unrecoverable_jobs
from controlplane.runtime.engines import Engines, Running
from controlplane.runtime.executor import effects_of
from controlplane.runtime.faults import reach
from controlplane.runtime.lease import Beginning, Lease, Unstored
from controlplane.runtime.models import GivenIncarnation
from controlplane.runtime.rebuilding import (
    START,
    Known,
    LogIncomplete,
    NotAsPublished,
    checked,
    known_in_redis,
    published_commands,
    published_orders,
    rebuilt,
    stream_entries,
)
from controlplane.runtime.redis import Client
from controlplane.runtime.stored_log import Stored, stored_entries, stored_so_far
from controlplane.runtime.streams import after

LOST_ALL: Final = "Redis lost the log, or was replaced; the job continues from the database"
RESTARTED: Final = "Redis was restarted and may have lost the end of the log"

AFTER_LOSS: Final = 1000
"""Step of the incarnation number if Redis is empty: a database restored from a dump may not know the latest ones."""

logger = structlog.get_logger(__name__)


def bring_up(client: Client, lease: Lease, engines: Engines) -> Running | None:
    """The job's engine at the last answered entry; None if the job cannot continue, and the lease is released."""
    if (kept := engines.kept(lease)) is not None:
        return kept
    why = RESTARTED if lease.cursor else LOST_ALL
    if lease.whole:
        try:
            return rebuilt(client, lease, engines)
        except NotAsPublished as error:
            why = str(error)
    return _recovered(client, lease, engines, why)


def _recovered(client: Client, lease: Lease, engines: Engines, why: str) -> Running | None:
    state = Job.objects.filter(pk=lease.job).values_list("state", flat=True).first()
    stored = stored_so_far(lease.job)
    if state is None or (stored.events == START and not lease.cursor):
        lease.release("idle")  # no such job, or it has not started
        return None
    if state in JOB_OVER:
        unrecoverable_jobs.end_unrecoverable(client, lease)
        return None
    try:
        return recover(client, lease, engines, stored, why)
    except LogIncomplete as error:
        unrecoverable_jobs.pause(client, lease, f"{why}; it cannot be rebuilt: {error}")
        return None


def recover(client: Client, lease: Lease, engines: Engines, stored: Stored, why: str) -> Running:
    """Rebuild the engine and begin a new incarnation.

    Raises:
        LogIncomplete: if neither Redis nor the database has enough of the log.
        LeaseLost: if another process holds the job by now.
    """
    known = known_in_redis(client, lease.job)
    start = known or _known_in_database(lease.job)
    running, unreadable = engines.restored(lease.job, start.snapshot if start else None, lease.incarnation)
    if known is None and running.engine.cursor == START:
        start = None
    aim = stored.events if known is None or after(stored.events, known.cursor) else known.cursor
    numbers = _replay(client, lease, running, start, stored, aim)
    reach("recovery.replayed")
    incarnation = _give_incarnation(
        lease.job, after=max(lease.incarnation, stored.incarnation), step=AFTER_LOSS if why == LOST_ALL else 1
    )
    reason = _reason(why, known, aim, unreadable)
    forgot = not lease.whole
    event = IncarnationBegan(
        incarnation=incarnation,
        reason=reason,
        after=aim,
        sequence=max([numbers.sequence, *stored.sequences.values()]),
        forgot=forgot,
        published={} if forgot else _published(client, lease.job),
    )
    logger.warning("a new incarnation begins", job=lease.job, incarnation=incarnation, why=reason)
    beginning = Beginning(
        incarnation=incarnation,
        cursor=aim,
        stored_events=stored.events,
        stored_commands=stored.commands,
        snapshot=running.engine.snapshot(),
        event=log.encode_event(event),
        sequence=event.sequence,
        unstored=numbers.unstored,
    )
    running.quiet_until = lease.recover(beginning, ENGINE_VERSION)
    running.incarnation = incarnation
    reach("recovery.begun")
    return running


def _give_incarnation(job: int, *, after: int, step: int) -> int:
    """A number that no incarnation of this job ever had, including lost ones."""
    with transaction.atomic():
        given, _ = GivenIncarnation.objects.select_for_update().get_or_create(job_id=job)
        given.number = max(given.number, after) + step
        given.save()
    return given.number


def _known_in_database(job: int) -> Known | None:
    """The stored state from which a recovery starts if Redis is empty; None: it starts at the log's beginning."""
    kept = snapshots.usable(job)
    if kept is None:
        return None
    return Known(
        cursor=kept.cursor,
        sequence=kept.sequence,
        incarnation=kept.incarnation,
        snapshot=bytes(kept.data),
        version=kept.version,
    )


def _replay(
    client: Client, lease: Lease, running: Running, known: Known | None, stored: Stored, aim: str
) -> "_Numbers":
    """Bring the engine to ``aim``; the numbers of the commands on the way, from what is ``known`` of the start."""
    base = running.engine.cursor
    numbers = _Numbers(running, stored, known, _boundaries(client, lease, base, aim))
    for entry in checked(base, _entries(client, lease, base, stored, aim)):
        numbers.count(entry, running.replay(entry))
    if running.engine.cursor != aim:
        raise LogIncomplete(f"it was answered up to {aim}, but the remaining log ends at {running.engine.cursor}")
    return numbers


def _entries(client: Client, lease: Lease, base: str, stored: Stored, aim: str) -> Iterator[Entry]:
    """The entries after ``base``: first from the database, then later ones from the stream. Ingest copies meanwhile."""
    for entry in stored_entries(lease.job, after=base) if after(stored.events, base) else ():
        if after(entry.id, stored.events):
            break
        lease.renew()
        if after(entry.id, base):
            yield entry
    behind = stored.events if after(stored.events, base) else base
    yield from stream_entries(client, lease, behind=behind, upto=aim)


def _boundaries(client: Client, lease: Lease, base: str, aim: str) -> list[IncarnationBegan]:
    """The first event of each incarnation after ``base``."""
    stored = stored_entries(lease.job, after=base, kind="incarnation-began")
    incarnations = [*stored, *stream_entries(client, lease, behind=base, upto=aim)]
    return [entry.event for entry in incarnations if isinstance(entry.event, IncarnationBegan)]


@dataclass(slots=True)
class _Numbers:
    """Numbers commands as commits had numbered them, from the first one that Redis lost."""

    running: Running
    stored: Stored
    known: Known | None
    incarnations: Sequence[IncarnationBegan]
    unstored: list[Unstored] = field(default_factory=list)
    sequence: int = 0
    _incarnation: int = 0

    def __post_init__(self) -> None:
        if self.known is not None:
            self._incarnation, self.sequence = self.known.incarnation, self.known.sequence

    def count(self, entry: Entry, commands: Sequence[AnyCommand]) -> None:
        """Record the commands of an entry."""
        if self.known is not None and not after(entry.id, self.known.cursor):
            return
        for began in self.incarnations:
            if began.incarnation > self._incarnation and after(entry.id, began.after):
                self._incarnation, self.sequence = began.incarnation, began.sequence
        first = self.sequence + 1
        self.sequence += len(commands)
        skipped = max(0, self.stored.sequences.get(self._incarnation, 0) - first + 1)
        missing = commands[skipped:]
        if missing:
            effects = effects_of(self.running.facts, missing)
            sequence = first + skipped
            self.unstored.append(
                Unstored(
                    effects=effects, sequence=sequence, first=entry.id, last=entry.id, incarnation=self._incarnation
                )
            )


def _published(client: Client, job: int) -> dict[int, Orders]:
    return dict(published_orders(published_commands(client, job)))


def _reason(why: str, known: Known | None, aim: str, unreadable: str) -> str:
    reasons = [why]
    if known is not None and after(aim, known.cursor):
        reasons.append(f"it was answered up to {known.cursor}, the database has it up to {aim}")
    if known is not None and known.version not in ("", ENGINE_VERSION):
        reasons.append(f"the answers are of engine version {known.version}, this release has version {ENGINE_VERSION}")
    if unreadable:
        reasons.append(f"its snapshot could not be read ({unreadable}), so it was rebuilt from its log")
    return clean_text("; ".join(reasons))
