"""Rebuilds a job's engine from the cache, or from snapshot and log.

The replayed answers are compared with the command stream; the published orders win. If nothing is missing or different,
the job continues; otherwise ``recovery`` handles it.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from controlplane.core.commands import AnyCommand, IssueOrders
from controlplane.core.events import Entry, JobSubmitted
from controlplane.protocol.orders import Orders
from controlplane.runtime import log, names
from controlplane.runtime.engines import READ_COUNT, Engines, Running
from controlplane.runtime.executor import decode_commands
from controlplane.runtime.lease import Lease
from controlplane.runtime.redis import Client
from controlplane.runtime.streams import after
from controlplane.simulator.replay import Decided, decided, is_same

START: Final = "0-0"
SHOWN: Final = 200
"""Most characters of a command in a message."""


class NotAsPublished(RuntimeError):
    """A replay of the log in Redis differs from the published answers; the message names the first difference."""


class LogIncomplete(NotAsPublished):
    """A needed part of the log is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The state of a job's engine that Redis has."""

    cursor: str
    sequence: int
    incarnation: int
    snapshot: bytes | None
    version: str


def known_in_redis(client: Client, job: int) -> Known | None:
    """The state in Redis; None if there is none."""
    fields = ("cursor", "sequence", "incarnation", "snapshot")
    cursor, sequence, incarnation, snapshot = client.execute_command("HMGET", names.engine(job), *fields)
    if cursor is None:
        return None
    last = client.execute_command("XREVRANGE", names.commands(job), "+", "-", "COUNT", 1)
    return Known(
        cursor=cursor.decode(),
        sequence=int(sequence),
        incarnation=int(incarnation or 0),
        snapshot=snapshot,
        version=last[0][1].get(b"version", b"").decode() if last else "",
    )


def rebuilt(client: Client, lease: Lease, engines: Engines) -> Running:
    """The engine at the lease's cursor, from snapshot and tail.

    Raises:
        LogIncomplete: if Redis lacks a part of the log.
        NotAsPublished: if the replay gives other commands than were published.
    """
    known = known_in_redis(client, lease.job)
    running, _ = engines.restored(lease.job, known.snapshot if known else None, lease.incarnation)
    base, replayed = running.engine.cursor, list[AnyCommand]()
    for entry in checked(base, stream_entries(client, lease, behind=base, upto=lease.cursor)):
        replayed += running.replay(entry)
    if running.engine.cursor != lease.cursor:
        found = running.engine.cursor
        raise LogIncomplete(f"the log was answered up to {lease.cursor}, but ends at {found}")
    published = [command for command in published_commands(client, lease.job) if after(command.cause, base)]
    if first_difference(published, replayed) is not None:
        done = [command for command in replayed if running.can_do(command)]
        if (difference := first_difference(published, done)) is not None:
            raise NotAsPublished(difference)
    return running


def stream_entries(client: Client, lease: Lease, *, behind: str, upto: str) -> Iterator[Entry]:
    """The entries in Redis, in order; renews the lease meanwhile."""
    while after(upto, behind):
        lease.renew()
        entries = log.read_entries(client, lease.job, after=behind, count=READ_COUNT, block_s=0)
        wanted = [entry for entry in entries if not after(entry.id, upto)]
        if not wanted:
            return
        yield from wanted
        behind = wanted[-1].id


def checked(base: str, entries: Iterable[Entry]) -> Iterator[Entry]:
    """The entries; checks that they start with the first one, which a new engine needs.

    Raises:
        LogIncomplete: if the first is not the beginning of a log.
    """
    for place, entry in enumerate(entries):
        if place == 0 and base == START and not isinstance(entry.event, JobSubmitted):
            raise LogIncomplete(f"the start of the log is missing, its first entry is {entry.id}")
        yield entry


def first_difference(published: Iterable[AnyCommand], replayed: Iterable[AnyCommand]) -> str | None:
    """The first difference of the two, as a sentence; None if there is none. The wording of reasons is not compared."""
    for left, right in itertools.zip_longest(published, replayed):
        if left == right:
            continue
        was, now = (None if command is None else decided(command) for command in (left, right))
        if was is None or now is None or not is_same(was, now):
            cause = (left or right).cause
            return f"at {cause}, {_described(was)} was published, but a replay gives {_described(now)}"
    return None


def _described(one: Decided | None) -> str:
    text = "nothing" if one is None else str(one)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def published_commands(client: Client, job: int) -> list[AnyCommand]:
    """Every command that is still in the stream, in order."""
    answers = client.execute_command("XRANGE", names.commands(job), "-", "+")
    return [command for _, answer in answers for command in decode_commands(answer[b"c"])]


def published_orders(commands: Iterable[AnyCommand]) -> Mapping[int, Orders]:
    """The last orders of each rank among them."""
    return {command.rank: command.orders for command in commands if isinstance(command, IssueOrders)}
