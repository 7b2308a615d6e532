"""Metrics of the control plane: jobs by state, slots, ingest, queues, Redis."""

from collections.abc import Iterable, Mapping

from django.db.models import Count, Sum
from django.utils import timezone

from controlplane.api.metrics.families import Families
from controlplane.core.states import JobState
from controlplane.fleet.models import Agent, Reservation
from controlplane.fleet.selectors import JsonLength
from controlplane.jobs.models import Flag, Job
from controlplane.runtime import names
from controlplane.runtime.freshness import copying
from controlplane.runtime.health import HISTORY
from controlplane.runtime.ingest_health import history
from controlplane.runtime.queue import DECISIONS
from controlplane.runtime.redis import Client
from controlplane.runtime.redis_memory import redis_memory
from controlplane.telemetry.present_costs import pressing


def describe_rows(families: Families) -> None:
    """Add the metrics over all jobs and machines in the database."""
    jobs = dict(Job.objects.filter(simulation=None).order_by().values_list("state").annotate(number=Count("id")))
    _by(families, "paceline_jobs", "Jobs by state.", "state", {state.value: jobs.get(state, 0) for state in JobState})
    agents = dict(Agent.objects.order_by().values_list("state").annotate(number=Count("id")))
    found = {state.value: agents.get(state, 0) for state in Agent.State}
    _by(families, "paceline_agents", "Machines by state.", "state", found)
    reserved = dict(Reservation.objects.order_by().values_list("role").annotate(number=Count("id")))
    held = {role: reserved.get(role, 0) for role in ("worker", "server")}
    _by(families, "paceline_slots_reserved", "Slots reserved by jobs, by role.", "role", held)
    online = Agent.objects.filter(state=Agent.State.ONLINE).annotate(worker_slots=JsonLength("slots"))
    sums = online.aggregate(worker=Sum("worker_slots"), server=Sum("server_slots"))
    offered = {role: number or 0 for role, number in sums.items()}
    _by(families, "paceline_slots_offered", "Slots of online machines, by role.", "role", offered)
    open_flags = len(pressing(Flag.objects.filter(closed_at=None, job__simulation=None), timezone.now()))
    text = "Open straggler findings that are neither acknowledged nor muted."
    families.gauge("paceline_flags_open", text, open_flags)
    samples = Job.objects.filter(simulation=None).aggregate(n=Sum("samples"))["n"] or 0
    families.gauge("paceline_samples", "Samples processed by all jobs.", samples)


def describe_redis(families: Families, client: Client, now_ms: float, jobs: Iterable[int]) -> None:
    """Add ingest lag of these jobs, memory use of Redis, and queue lengths."""
    memory, found = redis_memory(client), history(client)
    families.gauge("paceline_redis_used_bytes", "Used memory of Redis.", memory.used)
    families.gauge("paceline_redis_limit_bytes", "Memory limit of Redis; 0: unknown.", memory.limit)
    families.gauge("paceline_log_entries_most", "Length of the longest log in Redis.", found.entries)
    stopped = int(found.stopped_since is not None)
    families.gauge("paceline_history_stopped", "1 while ingest cannot write to the database.", stopped)
    text = "Age of the oldest entry of the job's log that is not in the database."
    for job, each in sorted(copying(client, jobs).items()):
        families.gauge("paceline_job_ingest_lag_seconds", text, each.waits_s, {"job_id": str(job)})
    queued = {queue: int(client.llen(queue)) for queue in (DECISIONS, HISTORY)}
    _by(families, "paceline_tasks_queued", "Queued Celery tasks, by queue.", "queue", queued)
    if beat := client.get(names.REAPER_BEAT):
        age_s = max(0.0, now_ms - int(beat)) / 1000
        families.gauge("paceline_beat_age_seconds", "Seconds since the last periodic task.", age_s)


def _by(families: Families, name: str, text: str, label: str, values: Mapping[str, float]) -> None:
    for key, value in values.items():
        families.gauge(name, text, value, {label: key})
