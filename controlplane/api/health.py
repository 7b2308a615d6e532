"""For whoever watches the control plane: alive, ready, and numbers for Prometheus."""

from collections.abc import Iterator

import redis.exceptions
from django.db import DatabaseError, connection
from django.db.models import Count, Sum
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client import generate_latest as render
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from controlplane.api.problems import plain_response
from controlplane.core.states import JobState
from controlplane.fleet.models import Agent, Reservation
from controlplane.fleet.selectors import JsonLength
from controlplane.jobs.flag_notes import unnoted
from controlplane.jobs.models import Flag, Job
from controlplane.runtime.dead_letters import job_warnings
from controlplane.runtime.ingest_health import history
from controlplane.runtime.redis import shared
from controlplane.runtime.redis_identity import own_identity
from controlplane.runtime.redis_memory import redis_memory


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """200 as long as this process answers."""
    return JsonResponse({"status": "ok"})


@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """200 if work can be taken: database and Redis answer, and history can be written; else 503 naming what cannot.

    What only gets worse if nobody looks (history falls behind, Redis fills up) is said in ``warnings``.
    """
    redis_fault, warnings = _redis_state()
    faults = [fault for fault in (_database_fault(), redis_fault) if fault]
    if faults:
        return plain_response(503, "; ".join(faults + warnings))
    return JsonResponse({"status": "ok"} | ({"warnings": warnings} if warnings else {}))


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """The state of jobs and machines, and of this process, in Prometheus' text format."""
    return HttpResponse(render(REGISTRY), content_type=CONTENT_TYPE_LATEST)


class ControlPlaneCollector(Collector):
    """Reads the numbers when they are asked for: any web process gives the same ones."""

    def describe(self) -> list[Metric]:
        """Nothing: the database is not asked before somebody scrapes."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Gauges over jobs, machines and slots."""
        jobs = dict(Job.objects.filter(simulation=None).order_by().values_list("state").annotate(number=Count("id")))
        yield _gauge(
            "paceline_jobs", "Jobs by state.", "state", {state.value: jobs.get(state, 0) for state in JobState}
        )
        agents = dict(Agent.objects.order_by().values_list("state").annotate(number=Count("id")))
        states = [state.value for state in Agent.State]
        yield _gauge(
            "paceline_agents", "Machines by state.", "state", {state: agents.get(state, 0) for state in states}
        )
        yield _gauge("paceline_slots_reserved", "Slots that jobs hold, by role.", "role", _reserved())
        online = Agent.objects.filter(state=Agent.State.ONLINE).annotate(worker_slots=JsonLength("slots"))
        sums = online.aggregate(worker=Sum("worker_slots"), server=Sum("server_slots"))
        offered = {role: number or 0 for role, number in sums.items()}
        yield _gauge("paceline_slots_offered", "Slots of machines that are online, by role.", "role", offered)
        yield GaugeMetricFamily(
            "paceline_flags_open",
            "Open straggler findings that nobody has acknowledged or muted.",
            value=len(unnoted(Flag.objects.filter(closed_at=None, job__simulation=None), timezone.now())),
        )
        yield GaugeMetricFamily(
            "paceline_samples",
            "Samples processed by all jobs.",
            value=Job.objects.filter(simulation=None).aggregate(n=Sum("samples"))["n"] or 0,
        )
        yield from _history()


def _history() -> Iterator[Metric]:
    """How far the database is behind Redis, and how full that is; nothing where there is no Redis to ask."""
    try:
        found, memory = history(shared()), redis_memory(shared())
    except (redis.exceptions.RedisError, RuntimeError):
        return
    yield GaugeMetricFamily("paceline_redis_used_bytes", "Memory that Redis uses.", value=memory.used)
    yield GaugeMetricFamily("paceline_redis_limit_bytes", "Memory that Redis may use; 0: unknown.", value=memory.limit)
    yield GaugeMetricFamily("paceline_log_entries_most", "Entries in Redis of the longest log.", value=found.entries)
    stopped = int(found.stopped_since is not None)
    yield GaugeMetricFamily("paceline_history_stopped", "1 while nothing can be written to the database.", stopped)


def _registry() -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    registry.register(ControlPlaneCollector())
    return registry


REGISTRY = _registry()


def _gauge(name: str, text: str, label: str, values: dict[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _reserved() -> dict[str, int]:
    rows = dict(Reservation.objects.order_by().values_list("role").annotate(number=Count("id")))
    return {"worker": rows.get("worker", 0), "server": rows.get("server", 0)}


def _database_fault() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM jobs_job LIMIT 1")
    except DatabaseError as error:
        return f"database: {str(error).strip()}; was `manage.py migrate` run?"
    return ""


def _redis_state() -> tuple[str, list[str]]:
    """That Redis is gone or another database's, or that its streams cannot be copied; and what is to be looked at."""
    try:
        own_identity(shared())
        copying, warnings = history(shared()), [redis_memory(shared()).sentence, job_warnings(shared())]
    except (redis.exceptions.RedisError, RuntimeError) as error:
        return f"redis: {error}", []
    except DatabaseError:  # told already
        return "", []
    fault = copying.sentence if copying.stopped_since is not None else ""
    warnings += [copying.sentence] if not fault else []
    return fault, [warning for warning in warnings if warning]
