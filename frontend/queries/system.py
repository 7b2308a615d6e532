"""Reads the health of the control plane's components, with numbers and remedies."""

import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

from django.core.cache import cache

from controlplane.fleet.models import Agent
from controlplane.runtime import presence
from controlplane.runtime.health import Health, Sample, rates, read_health, samples
from frontend import formats
from frontend.queries.wording import counted

KEPT_S = 2
"""How long a reading is shared by all viewers."""

LAG_S = 10.0
"""Ingest runs once a second; entries older than this are late."""

BEAT_S = 15.0
SLOW_MS = 250.0
FULL = 0.8
"""Fraction of the Redis memory limit."""

QUEUED = 50
"""Number of queued tasks above which a queue counts as overloaded."""

PACKAGES = ("django", "channels", "celery", "djangorestframework", "plotly", "numpy", "msgspec", "uvicorn")

WELL, WATCH, DOWN, UNKNOWN = "healthy", "degraded", "down", "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One number of a component."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One component: its state, its numbers, and the remedy if it is not healthy."""

    name: str
    title: str
    state: str
    facts: tuple[Fact, ...]
    remedy: str = ""
    trend: str = ""
    """Points of an SVG polyline in a box of 100 by 24: the last hour."""
    trend_title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """The whole page."""

    parts: tuple[Part, ...]
    at: datetime
    notice: str
    versions: tuple[Fact, ...]
    odd_agents: tuple[str, ...]
    """Machines whose agent version differs from that of most."""

    @property
    def troubled(self) -> int:
        """Components that are not healthy."""
        return sum(part.state != WELL for part in self.parts)


def system() -> System:
    """The health of all components; cached for ``KEPT_S``."""
    now: Health = cache.get_or_set("system-health", read_health, KEPT_S) or read_health()
    past: list[Sample] = samples() if "redis" not in now.faults else []
    return System(
        parts=parts(now, past),
        at=datetime.fromtimestamp(now.at_ms / 1000, tz=UTC),
        notice=now.streams.sentence,
        versions=tuple(_versions(now)),
        odd_agents=_odd_agents(),
    )


def parts(now: Health, past: Sequence[Sample]) -> tuple[Part, ...]:
    """Every component, from current values and those of the last hour."""
    return (_web(now, past), _decisions(now, past), _history(now, past), _beat(now), _redis(now, past), _database(now))


def _web(now: Health, past: Sequence[Sample]) -> Part:
    here = [gateway for gateway in now.gateways if gateway.silent_s * 1000 <= presence.GATEWAY_SILENT_MS]
    away = [gateway for gateway in now.gateways if gateway not in here]
    remedy = ""
    if away:
        names = ", ".join(f"{gateway.host} ({formats.duration(gateway.silent_s)})" for gateway in away)
        remedy = f"No heartbeat from {names}: restart its web process (uvicorn), or wait until the entry expires."
    return Part(
        name="web",
        title="Web and websockets",
        state=_worst(now, down=False, watch=bool(away)),
        facts=(
            Fact(name="Web processes", text=str(len(here))),
            Fact(name="Pages open", text=str(sum(gateway.pages for gateway in here))),
            Fact(name="Machine sockets", text=str(sum(gateway.machines for gateway in here))),
        ),
        remedy=remedy or _unknown(now),
        trend=polyline([sample.pages for sample in past]),
        trend_title="Pages open",
    )


def _decisions(now: Health, past: Sequence[Sample]) -> Part:
    queued, late = now.queued.get("decisions", 0), (now.decision_p95_s or 0.0) * 1000 > SLOW_MS
    remedy = ""
    if not now.deciders:
        remedy = (
            "No decision process is running: workers continue up to their granted iteration, then wait. Start a Celery "
            "worker for the decisions queue: python -m celery -A controlplane.config worker -Q decisions."
        )
    elif queued > QUEUED:
        remedy = (
            f"{queued} jobs are waiting for a decision thread: start another Celery worker for the decisions queue."
        )
    elif late:
        remedy = (
            f"Decision latency is above {SLOW_MS:.0f} ms: this machine is overloaded, or has too few decision threads."
        )
    return Part(
        name="decisions",
        title="Decisions (Celery)",
        state=_worst(now, down=not now.deciders, watch=bool(remedy)),
        facts=(
            Fact(name="Decision processes", text=str(now.deciders)),
            Fact(name="Latency, median", text=formats.milliseconds(now.decision_p50_s)),
            Fact(name="Latency, 95th percentile", text=formats.milliseconds(now.decision_p95_s)),
            Fact(name="Jobs queued", text=str(queued)),
        ),
        remedy=_unknown(now) or remedy,
        trend=polyline([sample.decision_p95_s or 0.0 for sample in past]),
        trend_title="Latency, 95th percentile",
    )


def _history(now: Health, past: Sequence[Sample]) -> Part:
    streams, latest = now.streams, rates(past)[-1:]
    remedy = streams.sentence
    if not remedy and not now.ingesting and now.streams.jobs:
        remedy = (
            "No ingest process is running: start a Celery worker for the history queue: "
            "python -m celery -A controlplane.config worker -Q history. No data is lost in the meantime."
        )
    elif not remedy and streams.lag_s > LAG_S:
        remedy = (
            "Pages are out of date: jobs report faster than the database can store. It catches up when the rate drops."
        )
    return Part(
        name="history",
        title="Ingest (Celery, history)",
        state=_worst(now, down=not now.ingesting and now.streams.jobs > 0, watch=bool(remedy)),
        facts=(
            Fact(name="Lag", text=f"{formats.significant(streams.lag_s)} s"),
            Fact(name="Entries per second", text=formats.significant(latest[0] if latest else None)),
            Fact(name="Longest log in Redis", text=f"{streams.waiting:,} entries"),
            Fact(name="Live jobs", text=str(streams.jobs)),
            Fact(name="Tasks queued", text=str(now.queued.get("history", 0))),
        ),
        remedy=_unknown(now) or remedy,
        trend=polyline([sample.lag_s for sample in past]),
        trend_title="Lag",
    )


def _beat(now: Health) -> Part:
    silent = now.beat_s is None or now.beat_s > BEAT_S
    ago = "never" if now.beat_s is None else f"{formats.duration(now.beat_s)} ago"
    remedy = (
        "No periodic tasks are running: jobs are not started and lost machines are not detected. Start beat "
        "(python -m celery -A controlplane.config beat) and a Celery worker for the history queue."
    )
    return Part(
        name="beat",
        title="Scheduler (Celery beat)",
        state=_worst(now, down=silent, watch=False),
        facts=(Fact(name="Last periodic task", text="unknown" if now.faults.get("redis") else ago),),
        remedy=_unknown(now) or (remedy if silent else ""),
    )


def _redis(now: Health, past: Sequence[Sample]) -> Part:
    fault, server = now.faults.get("redis", ""), now.redis
    if server is None:
        cure = (
            ""
            if "name an empty one" in fault
            else " Restart it, or check REDIS_URL. Jobs are restored from the database."
        )
        return Part(name="redis", title="Redis", state=DOWN, facts=(), remedy=f"{fault}.{cure}")
    part = server.used_bytes / server.limit_bytes if server.limit_bytes else None
    limit = f" of {formats.size(server.limit_bytes)}" if server.limit_bytes else ""
    remedy = ""
    if part is not None and part > FULL:
        remedy = f"Redis uses {part:.0%} of its memory: raise maxmemory, or stop jobs whose history is behind."
    elif server.ms > SLOW_MS:
        remedy = "Redis responds slowly: check the load of its host."
    return Part(
        name="redis",
        title="Redis",
        state=WATCH if remedy else WELL,
        facts=(
            Fact(name="Memory", text=f"{formats.size(server.used_bytes)}{limit}"),
            Fact(name="Response time", text=formats.milliseconds(server.ms / 1000)),
            Fact(name="Clients", text=str(server.clients)),
        ),
        remedy=remedy,
        trend=polyline([sample.redis_bytes for sample in past]),
        trend_title="Memory",
    )


def _database(now: Health) -> Part:
    server = now.database
    if server is None:
        fault = now.faults.get("database", "")
        remedy = f"{fault}. Restart it, or check DATABASE_URL. Jobs continue; their reports are buffered in Redis."
        return Part(name="database", title="Database", state=DOWN, facts=(), remedy=remedy)
    slow = server.ms > SLOW_MS
    return Part(
        name="database",
        title="Database",
        state=WATCH if slow else WELL,
        facts=(
            Fact(name="Response time", text=formats.milliseconds(server.ms / 1000)),
            Fact(name="Size", text=formats.size(server.used_bytes)),
            Fact(name="Version", text=server.version),
        ),
        remedy="The database responds slowly: check its load and its disk." if slow else "",
    )


def polyline(values: Sequence[float]) -> str:
    """The values in a box of 100 by 24, scaled from 0 to the maximum; empty for fewer than two."""
    if len(values) < 2:
        return ""
    top, step = max(values) or 1.0, 100 / (len(values) - 1)
    return " ".join(f"{place * step:.1f},{23 - 22 * value / top:.1f}" for place, value in enumerate(values))


def _worst(now: Health, *, down: bool, watch: bool) -> str:
    """The worse of two conditions; unknown without Redis."""
    if "redis" in now.faults:
        return UNKNOWN
    return DOWN if down else WATCH if watch else WELL


def _unknown(now: Health) -> str:
    return "Unknown while Redis is unreachable." if "redis" in now.faults else ""


def _versions(now: Health) -> Iterator[Fact]:
    yield Fact(name="Python", text=platform.python_version())
    for server in (now.database, now.redis):
        if server is not None:
            name, _, number = server.version.partition(" ")
            yield Fact(name=name, text=number)
    for package in PACKAGES:
        try:
            yield Fact(name=package, text=version(package))
        except PackageNotFoundError:
            continue
    counts: dict[str, int] = {}
    for found in Agent.objects.filter(state=Agent.State.ONLINE).values_list("version", flat=True):
        counts[found or "unknown"] = counts.get(found or "unknown", 0) + 1
    for name, count in sorted(counts.items()):
        yield Fact(name="Agents online", text=f"{name} on {counted(count, 'machine')}")


def _odd_agents() -> tuple[str, ...]:
    online = list(Agent.objects.filter(state=Agent.State.ONLINE).order_by("name").values_list("name", "version"))
    versions = [found for _, found in online]
    usual = max(versions, key=lambda found: (versions.count(found), found), default="")
    return tuple(f"{name} ({found or 'unknown'})" for name, found in online if found != usual)
