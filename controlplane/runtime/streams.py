"""Trims streams: removes entries that neither the database nor the last snapshot needs."""

from dataclasses import dataclass

from controlplane.runtime import names
from controlplane.runtime.redis import Client
from controlplane.runtime.scripts import RETIRE


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Ids of the last processed entries in a job's two streams."""

    events: str
    commands: str


def trim(client: Client, job: int, copied: Position) -> None:
    """Trim both streams to the entries that are not yet in both the database and the snapshot.

    Trims whole nodes only (``~``), which is cheap; the entry at the cursor itself stays.
    """
    known = client.execute_command("HMGET", names.engine(job), "snapshot_cursor", "snapshot_commands")
    if None in known:
        return
    _cut(client, names.events(job), min(copied.events, known[0].decode(), key=stream_order))
    _cut(client, names.commands(job), min(copied.commands, known[1].decode(), key=stream_order))


def retire(client: Client, job: int, copied: Position) -> bool:
    """Remove a finished job that is completely copied; False if entries are still to be copied."""
    return bool(RETIRE.run(client, keys_of(job), job, copied.events, copied.commands, names.TOMBSTONE_S))


def keys_of(job: int) -> list[str]:
    """The set of live jobs and every key of this job, its state and engine first."""
    return [
        *(names.LIVE_JOBS, names.state(job), names.engine(job), names.events(job), names.commands(job)),
        *(names.token(job), names.presence(job), names.connections(job), names.slots_sent(job)),
        names.durable(job),
    ]


def after(left: str, right: str) -> bool:
    """Whether stream id ``left`` comes after ``right``."""
    return stream_order(left) > stream_order(right)


def stream_order(stream_id: str) -> tuple[int, int]:
    """Sort key of a stream id."""
    milliseconds, _, sequence = stream_id.partition("-")
    return int(milliseconds), int(sequence)


def _cut(client: Client, stream: str, first_kept: str) -> None:
    client.execute_command("XTRIM", stream, "MINID", "~", first_kept)
