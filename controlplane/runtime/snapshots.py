"""Snapshots of engines: when to write one to Redis, and its copy in the database in case Redis loses everything.

A snapshot of a large job takes milliseconds, a read of the log microseconds, so not every commit writes one. Recovery
loads the last snapshot and replays the log after it; the answers to that part are in the command stream.

Ingest copies a snapshot to the database in the transaction that moves the job's cursors, once both streams are copied
up to it. A recovery then replays only the entries after it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from controlplane.core.engine import ENGINE_VERSION
from controlplane.runtime import names
from controlplane.runtime.redis import Client
from controlplane.runtime.streams import Position, after
from controlplane.telemetry.models import EngineSnapshot

SHORTEST_S: Final = 1.0
COST_SHARE: Final = 0.02
"""Largest fraction of a holder's time for snapshots."""

MOST_ENTRIES: Final = 5_000
"""Entries after which a snapshot is due in any case, to bound the replay."""

PAUSE_S: Final = 10.0
"""Minimum interval between two snapshots of a job, which can have megabytes; a recovery replays about this much log."""

FIELDS: Final = (
    "snapshot",
    *(f"snapshot_{part}" for part in ("cursor", "commands", "sequence", "incarnation", "version")),
)


class SnapshotPace:
    """Decides when a snapshot is due, by the duration of the last one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = clock()
        self._pause_s = SHORTEST_S
        self.entries = 0
        """Entries since the last snapshot."""

    def due(self) -> bool:
        """Whether to write a snapshot with the next commit."""
        return self.entries >= MOST_ENTRIES or (self.entries > 0 and self._clock() - self._last >= self._pause_s)

    def make(self, snapshot: Callable[[], bytes]) -> bytes:
        """Make a snapshot, and measure its duration."""
        started = self._clock()
        data = snapshot()
        self._last = self._clock()
        self._pause_s = max(SHORTEST_S, (self._last - started) / COST_SHARE)
        self.entries = 0
        return data


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A snapshot as Redis had it; ``commands`` is the last entry of the command stream before it."""

    data: bytes
    cursor: str
    commands: str
    sequence: int
    incarnation: int
    version: str


@dataclass(slots=True)
class Transfer:
    """Copies one job's snapshots from Redis to the database."""

    waiting: Snapshot | None = None
    _looked: float = field(default_factory=time.monotonic)
    _stored: str = ""

    def look(self, client: Client, job: int) -> None:
        """Read the snapshot in Redis from time to time; it waits until everything up to it is copied."""
        now = time.monotonic()
        if self.waiting is None and now - self._looked >= PAUSE_S:
            self._looked = now
            snapshot = read_from_redis(client, job)
            self.waiting = snapshot if snapshot is not None and snapshot.cursor != self._stored else None

    def due(self, copied: Position) -> Snapshot | None:
        """The snapshot to write with the batch that copies up to ``copied``."""
        waiting = self.waiting
        if waiting is None or after(waiting.cursor, copied.events) or after(waiting.commands, copied.commands):
            return None
        return waiting

    def note_stored(self, snapshot: Snapshot) -> None:
        """Record that the snapshot is in the database."""
        self.waiting, self._stored = None, snapshot.cursor


def read_from_redis(client: Client, job: int) -> Snapshot | None:
    """The last snapshot in Redis, if it is complete."""
    found = client.execute_command("HMGET", names.engine(job), *FIELDS)
    if None in found:
        return None
    data, cursor, commands, sequence, incarnation, version = found
    return Snapshot(
        data=data,
        cursor=cursor.decode(),
        commands=commands.decode(),
        sequence=int(sequence),
        incarnation=int(incarnation),
        version=version.decode(),
    )


def store(job: int, snapshot: Snapshot) -> None:
    """Replace the stored snapshot. Called in the transaction that moves the cursors."""
    fields = {name: getattr(snapshot, name) for name in ("cursor", "sequence", "incarnation", "version", "data")}
    EngineSnapshot.objects.update_or_create(job_id=job, defaults=fields)


def forget(job: int) -> None:
    """Delete the snapshot of a finished job, which will not be recovered."""
    EngineSnapshot.objects.filter(job_id=job).delete()


def usable(job: int) -> EngineSnapshot | None:
    """The stored snapshot, unless another version of the engine wrote it, which may decide differently."""
    return EngineSnapshot.objects.filter(job_id=job, version=ENGINE_VERSION).first()
