"""``/metrics``, for API tokens and signed-in users only: names of jobs and machines are not public."""

from collections.abc import Iterator

import redis.exceptions
from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client import generate_latest as render
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from rest_framework.request import Request
from rest_framework.views import APIView

from controlplane.api.metrics.families import Families
from controlplane.api.metrics.jobs import describe_jobs, read_jobs
from controlplane.api.metrics.machines import describe_machines
from controlplane.api.metrics.plane import describe_redis, describe_rows
from controlplane.runtime import presence
from controlplane.runtime.presence import LastHeartbeat
from controlplane.runtime.redis import shared


class MetricsView(APIView):
    """The state of jobs, workers and machines, and of this process, in Prometheus' text format."""

    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        """All metrics as of now."""
        return HttpResponse(render(REGISTRY), content_type=CONTENT_TYPE_LATEST)


class ControlPlaneCollector(Collector):
    """Reads the numbers at each scrape: any web process gives the same ones."""

    def describe(self) -> list[Metric]:
        """No metrics: the database is queried only by a scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All metrics except those of the process; values from Redis are omitted while it does not answer."""
        families = Families()
        describe_rows(families)
        found = read_jobs()
        describe_jobs(families, found)
        heartbeats: dict[int, LastHeartbeat] = {}
        now_ms = 0.0
        try:
            client = shared()
            seconds, microseconds = client.time()
            now_ms = int(seconds) * 1000 + int(microseconds) / 1000
            heartbeats = presence.agents_now(client)
            describe_redis(families, client, now_ms, [job.pk for job in found.jobs])
        except (redis.exceptions.RedisError, RuntimeError):
            pass
        left_out = {**found.left_out, "machines": describe_machines(families, heartbeats, now_ms)}
        for kind, number in left_out.items():
            text = "Omitted from this scrape because of its limits."
            families.gauge("paceline_metrics_left_out", text, number, {"kind": kind})
        yield from families


def _registry() -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    registry.register(ControlPlaneCollector())
    return registry


REGISTRY = _registry()
