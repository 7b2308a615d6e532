"""Health of the control plane: metrics of each service, read at once, and sampled every 10 s for an hour.

It reads values that services publish in Redis and the database, and sends them no requests.
"""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
from django.db import DatabaseError, connection
from redis.exceptions import RedisError

from controlplane.core.states import JobState
from controlplane.jobs.models import Job
from controlplane.runtime import liveness, names, presence
from controlplane.runtime.dead_letters import job_warnings
from controlplane.runtime.ingest_health import history
from controlplane.runtime.job_failures import isolated_step
from controlplane.runtime.queue import DECISIONS
from controlplane.runtime.redis import Client, shared
from controlplane.runtime.redis_identity import own_identity
from controlplane.telemetry.history import Span, read_columns
from controlplane.telemetry.models import Cursor

HISTORY: Final = "history"
"""Celery's other queue."""

SAMPLES: Final = 360
"""One hour, a sample every 10 s."""

MOST_JOBS: Final = 200
"""Maximum number of live jobs whose streams are checked, the newest."""

RATED_JOBS, RATED_ITERATIONS = 8, 20
"""Running jobs, and their last iterations, from which the latency of decisions is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """One web process that serves websockets."""

    host: str
    silent_s: float
    pages: int
    machines: int
    """Sockets of agents, workers and servers; ``pages`` are those of browsers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """How far the database is behind Redis, over all live jobs."""

    jobs: int = 0
    lag_s: float = 0.0
    """Age of the oldest uncopied entry, relative to the newest entry of its job."""
    waiting: int = 0
    """Entries in Redis of the job with the longest streams."""
    added: int = 0
    """Entries ever added to the logs of these jobs; with Redis before version 7, the entries that remain."""
    sentence: str = ""
    """The message for an operator; empty if all is well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A Redis or database that answers: its latency and version."""

    ms: float
    version: str
    used_bytes: int = 0
    limit_bytes: int = 0
    """Memory limit; 0: none is set."""
    clients: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """All measurements; None if a service did not answer, with the reason in ``faults``."""

    at_ms: int
    database: Server | None = None
    redis: Server | None = None
    gateways: tuple[Gateway, ...] = ()
    deciders: int = 0
    """Number of decision processes."""
    queued: Mapping[str, int] = field(default_factory=dict)
    """Number of waiting tasks, by queue."""
    beat_s: float | None = None
    """Time since the last task from beat; None before the first one."""
    ingesting: bool = False
    streams: Streams = field(default_factory=Streams)
    decision_p50_s: float | None = None
    decision_p95_s: float | None = None
    """From the slowest report of an iteration to the next orders."""
    faults: Mapping[str, str] = field(default_factory=dict)
    """Why ``database`` or ``redis`` does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One stored sample of the health."""

    at_ms: int
    lag_s: float
    waiting: int
    added: int
    queued: int
    redis_bytes: int
    pages: int
    decision_p95_s: float | None


def read_health(client: Client | None = None) -> Health:
    """Current health. A service that does not answer is not an error: it is reported as down."""
    found: dict[str, Any] = {"at_ms": int(time.time() * 1000)}
    faults: dict[str, str] = {}
    _try(faults, "database", lambda: found.update(database=_database(), **_latency()))
    _try(faults, "redis", lambda: found.update(_redis(client or shared())))
    return Health(**found, faults=faults)


def sample(client: Client | None = None) -> Sample:
    """Store a sample of the current health, for an hour."""
    client = client or shared()
    now = read_health(client)
    noted = Sample(
        at_ms=now.at_ms,
        lag_s=now.streams.lag_s,
        waiting=now.streams.waiting,
        added=now.streams.added,
        queued=sum(now.queued.values()),
        redis_bytes=now.redis.used_bytes if now.redis else 0,
        pages=sum(gateway.pages for gateway in now.gateways),
        decision_p95_s=now.decision_p95_s,
    )
    client.rpush(names.SYSTEM_SAMPLES, msgspec.json.encode(asdict(noted)))
    client.ltrim(names.SYSTEM_SAMPLES, -SAMPLES, -1)
    return noted


def samples(client: Client | None = None) -> list[Sample]:
    """The last hour, oldest first; empty where Redis does not answer."""
    try:
        found = (client or shared()).lrange(names.SYSTEM_SAMPLES, -SAMPLES, -1)
    except (RedisError, RuntimeError):
        return []
    return [Sample(**msgspec.json.decode(text)) for text in found]


def rates(found: Sequence[Sample]) -> list[float]:
    """Entries per second between consecutive samples; the log of a job that ended counts as 0."""
    pairs = itertools.pairwise(found)
    return [max(0.0, (b.added - a.added) * 1000 / max(1, b.at_ms - a.at_ms)) for a, b in pairs]


def _try(faults: dict[str, str], what: str, look: Callable[[], None]) -> None:
    try:
        look()
    except (RedisError, RuntimeError) as error:
        faults[what] = str(error)
    except DatabaseError as error:
        faults["database"] = " ".join(str(error).split()) or type(error).__name__


def _database() -> Server:
    began = time.perf_counter()
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM jobs_job LIMIT 1")
        ms = (time.perf_counter() - began) * 1000
        used = _database_bytes(cursor)
    version = ".".join(map(str, connection.get_database_version()))
    return Server(ms=ms, version=f"{connection.display_name} {version}", used_bytes=used)


def _database_bytes(cursor: Any) -> int:
    sizes = {
        "sqlite": "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
        "postgresql": "SELECT pg_database_size(current_database())",
    }
    cursor.execute(sizes[connection.vendor])
    return int(cursor.fetchone()[0])


def _latency() -> dict[str, float]:
    """Latency percentiles of running jobs' decisions: per iteration, the shortest wait of any worker for orders."""
    running = Job.objects.filter(state=JobState.RUNNING, iteration__gt=0).order_by("-pk")[:RATED_JOBS]
    waits: list[float] = []
    for job in running:
        with isolated_step("measuring latency", job.pk):
            recent = Span(first=max(0, job.iteration - RATED_ITERATIONS))
            for block in read_columns(job.pk, ("coordination_s",), recent).values():
                waits += block["coordination_s"].tolist()
    if not waits:
        return {}
    p50, p95 = np.quantile(waits, [0.5, 0.95]).tolist()
    return {"decision_p50_s": p50, "decision_p95_s": p95}


def _redis(client: Client) -> dict[str, Any]:
    began = time.perf_counter()
    client.ping()
    ms = (time.perf_counter() - began) * 1000
    own_identity(client)
    info = client.info()
    seconds, microseconds = client.time()
    now_ms = int(seconds) * 1000 + int(microseconds) // 1000
    beat = client.get(names.REAPER_BEAT)
    return {
        "redis": Server(
            ms=ms,
            version=f"Redis {info.get('redis_version', 'unknown')}",
            used_bytes=int(info.get("used_memory", 0)),
            limit_bytes=int(info.get("maxmemory", 0)),
            clients=int(info.get("connected_clients", 0)),
        ),
        "gateways": _gateways(client, now_ms),
        "deciders": sum(1 for _ in client.scan_iter(match=names.process("*"), count=1000)),
        "queued": {queue: int(client.llen(queue)) for queue in (DECISIONS, HISTORY)},
        "beat_s": max(0.0, (now_ms - int(beat)) / 1000) if beat else None,
        "ingesting": bool(client.exists(names.INGEST_LEASE)),
        "streams": _streams(client),
    }


def _gateways(client: Client, now_ms: int) -> tuple[Gateway, ...]:
    found = client.execute_command("HGETALL", names.GATEWAY_SOCKETS)
    sockets = {host.decode(): text.split() for host, text in found.items()}
    return tuple(
        Gateway(
            host=liveness.shown(host),
            silent_s=max(0, now_ms - heartbeat.at_ms) / 1000,
            pages=int(sockets.get(host, (0, 0))[0]),
            machines=int(sockets.get(host, (0, 0))[1]),
        )
        for host, heartbeat in sorted(presence.gateways_now(client).items())
    )


def _streams(client: Client) -> Streams:
    jobs = sorted((int(job) for job in client.smembers(names.LIVE_JOBS)), reverse=True)[:MOST_JOBS]
    with client.pipeline(transaction=False) as pipeline:
        for job in jobs:
            pipeline.xinfo_stream(names.events(job))
        logs = dict(zip(jobs, pipeline.execute(raise_on_error=False), strict=True))
    copied = Cursor.objects.filter(job__in=jobs, stream="events").values_list("job_id", "position")
    positions = {job: _ms(position) for job, position in copied}
    there = {job: log for job, log in logs.items() if isinstance(log, dict)}
    lags = [_ms(log["last-generated-id"]) - positions[job] for job, log in there.items() if positions.get(job)]
    behind = history(client)
    return Streams(
        jobs=len(jobs),
        lag_s=max(0, *lags, 0) / 1000,
        waiting=behind.entries,
        added=sum(_added(log) for log in there.values()),
        sentence=" ".join(sentence for sentence in (behind.sentence, job_warnings(client)) if sentence),
    )


def _added(log: dict[str, Any]) -> int:
    """Entries ever written to a stream; Redis has it from version 7 on; before that, the current length."""
    return int(log.get("entries-added", log["length"]))


def _ms(stream_id: bytes | str) -> int:
    text = stream_id.decode() if isinstance(stream_id, bytes) else stream_id
    return int(text.partition("-")[0])
