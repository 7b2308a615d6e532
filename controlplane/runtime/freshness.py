"""Age of each live job's data in the database, and which process copies it, without requests to other processes."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from controlplane.runtime import names
from controlplane.runtime.redis import Client
from controlplane.telemetry.models import Cursor

LATE_S: Final = 5.0
"""Ingest copies at least twice a second: if an entry waits for longer, pages show old data."""

MOST_JOBS: Final = 200
"""Maximum number of live jobs that are checked, the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copying:
    """The part of one job's log that the database has."""

    data_at: datetime | None
    """The time of the newest copied entry; None if none was copied yet."""
    waits_s: float
    """How long the oldest uncopied entry has been in the log; 0 if all are copied."""

    @property
    def late(self) -> bool:
        """Whether pages show old data."""
        return self.waits_s > LATE_S


def copying(client: Client, jobs: Iterable[int] | None = None) -> dict[int, Copying]:
    """The copied part of these jobs, or of all live ones."""
    live = {int(job) for job in client.smembers(names.LIVE_JOBS)}
    looked_at = sorted(live if jobs is None else live.intersection(jobs), reverse=True)[:MOST_JOBS]
    copied = Cursor.objects.filter(job__in=looked_at, stream="events").values_list("job_id", "position")
    positions = dict.fromkeys(looked_at, "0-0") | dict(copied)
    with client.pipeline(transaction=False) as pipeline:
        pipeline.time()
        for job, position in positions.items():
            pipeline.xrange(names.events(job), min=f"({position}", count=1)
        (seconds, microseconds), *waiting = pipeline.execute()
    now_s = int(seconds) + int(microseconds) / 1e6
    return {
        job: Copying(
            data_at=datetime.fromtimestamp(_seconds(position), tz=UTC) if position != "0-0" else None,
            waits_s=max(0.0, now_s - _seconds(entries[0][0].decode())) if entries else 0.0,
        )
        for (job, position), entries in zip(positions.items(), waiting, strict=True)
    }


def note_copier(client: Client, who: str) -> None:
    """Store the name of the copying process, for the message when it stops."""
    client.set(names.INGEST_WHO, who)


def behind(client: Client, found: dict[int, Copying]) -> str:
    """A warning for operators: since when pages show old data, the jobs, and the cure; empty while healthy."""
    late = {job: each for job, each in found.items() if each.late}
    if not late:
        return ""
    waits_s = max(each.waits_s for each in late.values())
    began = datetime.fromtimestamp(_now_s(client) - waits_s, tz=UTC)
    jobs = ", ".join(map(str, sorted(late)[:5])) + (f" and {len(late) - 5} more" if len(late) > 5 else "")
    return (
        f"History is {waits_s:,.0f} s behind: pages show job{'s' * (len(late) > 1)} {jobs} as of"
        f" {began:%Y-%m-%d %H:%M:%S} UTC. {_cure(client)} Training continues, and no data is lost."
    )


def _cure(client: Client) -> str:
    found: bytes | None = client.execute_command("GET", names.INGEST_WHO)
    who = (found or b"").decode()
    if client.exists(names.INGEST_LEASE):
        held = f" (process {who})" if who else ""
        return (
            f"The history service{held} is slower than the jobs' reports: check the load of its machine and of the"
            " database. It catches up automatically."
        )
    start = "python -m celery -A controlplane.config worker -Q history"
    if not who:
        return f"Ingest is not running: start the history service ({start})."
    host, _, pid = who.rpartition(":")
    return (
        f"Ingest is stalled: process {pid} on {host} was the last to copy, and is suspended, hangs or has ended."
        f" Kill it if it still exists (kill -9 {pid}), and restart the history service ({start})."
    )


def _now_s(client: Client) -> float:
    seconds, microseconds = client.time()
    return int(seconds) + int(microseconds) / 1e6


def _seconds(stream_id: str) -> float:
    return int(stream_id.partition("-")[0]) / 1000
