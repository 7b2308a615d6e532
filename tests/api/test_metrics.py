"""Numbers for Prometheus: who gets them, what they say, and what bounds them."""

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families
from rest_framework.test import APIClient

from controlplane.api.metrics import jobs, machines
from controlplane.api.metrics.families import UNITS, measured_name
from controlplane.core.states import JobState, ProcessState
from controlplane.fleet.models import Agent
from controlplane.jobs.flag_notes import flag_acknowledge, flag_mute
from controlplane.jobs.models import Flag, Job, Process
from controlplane.jobs.roles import Role
from controlplane.protocol.measurements import OF_MACHINES, OF_WORKERS
from controlplane.runtime import names
from controlplane.runtime.redis import shared
from controlplane.telemetry.batches import columns_of
from controlplane.telemetry.tallies import tally_decisions, tally_reports
from tests.api.conftest import Clients, refused, user_of
from tests.frontend.factories import make_agents, make_job, make_processes, make_simulation
from tests.support.rows import online_agent, reserve, submitted_job
from tests.telemetry.test_tallies import heard

pytestmark = pytest.mark.django_db

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scraped(client: Any) -> Samples:
    reply = client.get("/metrics")
    assert (reply.status_code, reply["Content-Type"].partition(";")[0]) == (200, "text/plain")
    found: Samples = {}
    for family in text_string_to_metric_families(reply.content.decode()):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, f"{key} twice"
            found[key] = sample.value
    return found


def of(found: Samples, name: str, /, **labels: object) -> float | None:
    return found.get((name, frozenset((key, str(value)) for key, value in labels.items())))


def training(workers: int = 4, **more: Any) -> Job:
    job = make_job(**more)
    agents = list(Agent.objects.order_by("name")) or make_agents()
    make_processes(job, agents, shares=(16,) * workers)
    Process.objects.filter(job=job, role="worker").update(counts_from=0)
    return job


def test_metrics_take_a_viewer(client_of: Clients, anybody: APIClient) -> None:
    stranger = anybody.get("/metrics")
    assert (refused(stranger)["status"], stranger["WWW-Authenticate"]) == (401, 'Bearer realm="paceline"')
    assert refused(client_of(None).get("/metrics"))["status"] == 403
    assert client_of(Role.VIEWER).get("/metrics").status_code == 200
    assert refused(client_of(Role.ADMIN).post("/metrics"))["status"] == 405


def test_any_signed_in_user_may_read_them() -> None:
    browser = Client()
    browser.force_login(user_of(Role.VIEWER))
    assert browser.get("/metrics").status_code == 200


def test_jobs_machines_and_slots_are_counted(viewer: APIClient) -> None:
    job = submitted_job(User.objects.create_user("ada"))
    for rank in range(3):
        at = timezone.now()
        Flag.objects.create(job=job, key=f"f{rank}", rank=rank, kind="compute", persistence="lasting", opened_at=at)
    flag_acknowledge(flag=Flag.objects.get(rank=1), actor="ada")
    flag_mute(flag=Flag.objects.get(rank=2), actor="ada", until=timezone.now() + timedelta(hours=1))
    online_agent("m1", slots=3, server_slots=2)
    reserve(7, {}, workers=2, servers=1)
    found = scraped(viewer)
    assert of(found, "paceline_jobs", state="submitted") == 1
    assert of(found, "paceline_jobs", state="running") == 0
    assert of(found, "paceline_agents", state="online") == 1
    assert of(found, "paceline_slots_offered", role="worker") == 3
    assert of(found, "paceline_slots_reserved", role="server") == 1
    assert of(found, "paceline_machine_slots_reserved", machine="m1", role="worker") == 2
    assert of(found, "paceline_flags_open") == 1
    assert of(found, "process_resident_memory_bytes")


def test_a_job_reports_how_it_trains(viewer: APIClient) -> None:
    job = training(samples=640, busy_s=6.0, waiting_s=3.0, coordination_s=1.0, iteration=60, loss=0.25, accuracy=0.9)
    at = timezone.now()
    Flag.objects.create(job=job, key="f", rank=3, kind="compute", persistence="lasting", opened_at=at)
    tally_decisions(job.pk, [0.004, 0.03])
    found, labels = scraped(viewer), {"job_id": job.pk}
    about = {"name": "digits", "batching": "lb-bsp-cpu", "barrier": "bsp", "launch": "native"}
    about |= {"placement": "round-robin", "data": "shared"}
    assert of(found, "paceline_job_info", **labels, **about) == 1
    assert of(found, "paceline_job_state", **labels, state="running") == 1
    assert of(found, "paceline_job_iteration", **labels) == 60
    assert of(found, "paceline_job_samples_total", **labels) == 640
    assert [
        of(found, "paceline_job_worker_seconds_total", **labels, part=part)
        for part in ("busy", "waiting", "coordination")
    ] == [6.0, 3.0, 1.0]
    assert of(found, "paceline_job_evaluation_loss", **labels) == 0.25
    assert of(found, "paceline_job_flags_open", **labels) == 1
    assert of(found, "paceline_job_decision_seconds_bucket", **labels, le="0.005") == 1
    assert of(found, "paceline_job_decision_seconds_bucket", **labels, le="+Inf") == 2
    assert of(found, "paceline_job_decision_seconds_sum", **labels) == pytest.approx(0.034)


def test_a_worker_reports_how_long_its_iterations_take_and_what_its_gpu_does(viewer: APIClient) -> None:
    job = training()
    gpu = {"gpu_utilization": 0.75, "gpu_memory": 2.0**30, "gpu_temperature": 61.0, "gpu_power": 250.0}
    tally_reports(
        job.pk, columns_of([heard(2, at_ms=5_000, compute_s=0.2, waiting_s=0.4), heard(2, at_ms=6_500, **gpu)])
    )
    found, labels = scraped(viewer), {"job_id": job.pk, "worker": "w2"}
    assert of(found, "paceline_worker_info", **labels, machine="machine-2") == 1
    assert of(found, "paceline_worker_share_samples", **labels) == 16
    assert of(found, "paceline_worker_samples_total", **labels) == 16
    assert of(found, "paceline_worker_phase_seconds_total", **labels, phase="waiting") == 0.4
    assert of(found, "paceline_worker_iteration_seconds_bucket", **labels, le="0.5") == 1
    assert of(found, "paceline_worker_iteration_seconds_bucket", **labels, le="1") == 2
    assert of(found, "paceline_worker_iteration_seconds_count", **labels) == 2
    assert of(found, "paceline_worker_last_report_timestamp_seconds", **labels) == 6.5
    assert of(found, "paceline_worker_gpu_utilization_ratio", **labels) == 0.75
    assert of(found, "paceline_worker_gpu_memory_bytes", **labels) == 2**30
    assert of(found, "paceline_worker_gpu_temperature_celsius", **labels) == 61
    assert of(found, "paceline_worker_gpu_power_watts", **labels) == 250
    assert of(found, "paceline_worker_gpu_power_watts", job_id=job.pk, worker="w1") is None
    assert of(found, "paceline_server_held_bytes", job_id=job.pk, server="s0") == 6 << 20


@pytest.mark.parametrize(("barrier", "ahead"), [("bsp", 0), ("asp", 3)])
def test_staleness_is_the_lead_over_the_slowest_that_counts(viewer: APIClient, barrier: str, ahead: int) -> None:
    job = training()
    job.spec["synchronization"] = {"batching": {"name": "uniform"}, "barrier": {"name": barrier}}
    job.save()
    Process.objects.filter(job=job, role="worker", index=0).update(iteration=7)
    Process.objects.filter(job=job, role="worker", index=1).update(iteration=10)
    Process.objects.filter(job=job, role="worker", index=2).update(iteration=2, state=ProcessState.LOST)
    Process.objects.filter(job=job, role="worker", index=3).update(iteration=1, counts_from=None)
    found = scraped(viewer)
    name = "paceline_worker_iterations_ahead"
    assert [of(found, name, job_id=job.pk, worker=f"w{rank}") for rank in range(4)] == [0, ahead, None, None]


def test_restarts_are_counted_and_the_newest_instance_shows(viewer: APIClient) -> None:
    job = training()
    old = Process.objects.get(job=job, role="worker", index=1)
    Process.objects.filter(pk=old.pk).update(state=ProcessState.LOST, ended_at=timezone.now())
    common = {"state_since": old.state_since, "started_at": old.started_at, "agent": old.agent}
    Process.objects.create(
        job=job, role="worker", index=1, instance="w1-b", state=ProcessState.READY, share=9, **common
    )
    found, labels = scraped(viewer), {"job_id": job.pk, "worker": "w1"}
    assert of(found, "paceline_worker_restarts_total", **labels) == 1
    assert of(found, "paceline_worker_restarts_total", job_id=job.pk, worker="w0") == 0
    assert of(found, "paceline_worker_up", **labels) == 1
    assert of(found, "paceline_worker_share_samples", **labels) == 9


def test_a_machine_reports_what_its_last_heartbeat_reported(viewer: APIClient, redis_url: str) -> None:
    here, away = make_agents(2)
    seconds, microseconds = shared().time()
    now_ms = seconds * 1000 + microseconds // 1000
    shared().hset(names.AGENTS, here.pk, f'{now_ms - 1000} {{"cpu":0.5,"memory":0.25,"network_in":2e6}}')
    shared().hset(names.AGENTS, away.pk, f'{now_ms - 60_000} {{"cpu":0.9,"memory":0.9}}')
    found = scraped(viewer)
    assert of(found, "paceline_machine_cpu_ratio", machine=here.name) == 0.5
    assert of(found, "paceline_machine_network_in_bytes_per_second", machine=here.name) == 2e6
    assert of(found, "paceline_machine_disk_read_bytes_per_second", machine=here.name) is None
    assert of(found, "paceline_machine_cpu_ratio", machine=away.name) is None
    age = of(found, "paceline_machine_heartbeat_age_seconds", machine=away.name)
    assert age is not None
    assert age >= 60


def test_the_document_has_each_metric_of_a_worker_a_server_and_a_machine(viewer: APIClient, redis_url: str) -> None:
    job, here = training(), Agent.objects.earliest("pk")
    rest = {each.name: 0.5 for each in OF_WORKERS if each.is_optional}
    tally_reports(job.pk, columns_of([heard(2, **rest)]))
    load = {each.name: 0.5 for each in OF_MACHINES}
    shared().hset(names.AGENTS, here.pk, f"{shared().time()[0] * 1000} {json.dumps(load)}")
    found = {re.sub(r"(?<=_seconds)_(bucket|count|sum)$", "", name) for name, _ in scraped(viewer)}
    text = (Path(__file__).parents[2] / "docs" / "operating.md").read_text().partition("\n## Metrics\n")[2]

    def listed(subject: str) -> set[str]:
        row = next(line for line in text.splitlines() if line.startswith(f"| `paceline_{subject}_"))
        return {f"paceline_{subject}{name}" for name in re.findall(r"`(?:paceline_[a-z]+)?(_\w+)", row)}

    summed = {"samples", *(f"{phase}_s" for phase in jobs.PHASES)}
    expected = {measured_name("worker", each) for each in OF_WORKERS if each.name not in summed}
    expected |= {measured_name("machine", each) for each in OF_MACHINES}
    subjects = ("worker", "server", "machine")
    assert {name for name in found if name.startswith(tuple(f"paceline_{each}_" for each in subjects))} == (
        expected.union(*map(listed, subjects))
    )
    assert [unit for unit, suffix in UNITS.items() if f"`{unit}`: `{suffix}`" not in " ".join(text.split())] == []


def test_ingest_lag_and_queues_are_those_of_redis(viewer: APIClient, redis_url: str) -> None:
    job = training()
    shared().sadd(names.LIVE_JOBS, job.pk)
    seconds, _ = shared().time()
    shared().xadd(names.events(job.pk), {"e": b""}, id=f"{(seconds - 30) * 1000}-0")
    shared().lpush("decisions", "a", "b")
    shared().set(names.REAPER_BEAT, (seconds - 7) * 1000)
    found = scraped(viewer)
    lag = of(found, "paceline_job_ingest_lag_seconds", job_id=job.pk)
    assert lag is not None
    assert lag >= 29
    assert of(found, "paceline_tasks_queued", queue="decisions") == 2
    age = of(found, "paceline_beat_age_seconds")
    assert age is not None
    assert age >= 6


def test_without_redis_what_the_database_has_remains(viewer: APIClient, settings: Any, tmp_path: Any) -> None:
    settings.REDIS_URL = f"unix://{tmp_path}/nobody.sock"
    job = training()
    found = scraped(viewer)
    assert of(found, "paceline_job_iteration", job_id=job.pk) == job.iteration
    assert of(found, "paceline_redis_used_bytes") is None


def test_labels_are_those_of_jobs_that_have_started_and_are_not_over(viewer: APIClient) -> None:
    shown = {training(state=state).pk for state in jobs.STARTED}
    for state in set(JobState) - set(jobs.STARTED):
        training(state=state)
    training(simulation=make_simulation())
    labels = {dict(labels).get("job_id") for _, labels in scraped(viewer)} - {None}
    assert labels == {str(pk) for pk in shown}


def test_what_is_beyond_the_bounds_is_counted(viewer: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "MOST_JOBS", 2)
    monkeypatch.setattr(jobs, "MOST_PROCESSES", 8)
    monkeypatch.setattr(machines, "MOST_MACHINES", 3)
    oldest, older, newest = (training() for _ in range(3))
    tally_reports(older.pk, columns_of([heard(1), heard(3)]))
    found = scraped(viewer)
    assert of(found, "paceline_metrics_left_out", kind="jobs") == 1
    assert of(found, "paceline_metrics_left_out", kind="processes") == 4
    assert of(found, "paceline_metrics_left_out", kind="machines") == 1
    assert of(found, "paceline_job_iteration", job_id=oldest.pk) is None
    assert of(found, "paceline_worker_up", job_id=newest.pk, worker="w3") == 1
    assert of(found, "paceline_worker_up", job_id=older.pk, worker="w1") == 1
    assert of(found, "paceline_worker_up", job_id=older.pk, worker="w3") is None


def test_a_scrape_asks_as_many_queries_for_64_workers_as_for_four(viewer: APIClient) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as asked:
            scraped(viewer)
        return len(asked)

    training(4)
    few = queries()
    job = training(64)
    tally_reports(job.pk, columns_of([heard(rank, compute_s=0.01 * rank) for rank in range(64)]))
    assert queries() == few


def test_names_and_labels_are_as_prometheus_wants_them(viewer: APIClient) -> None:
    training(name='a "name" with \\ and\nmore')
    found = scraped(viewer)
    for name, labels in found:
        assert re.fullmatch(r"[a-z_][a-z0-9_]*", name)
        assert {"job", "instance"}.isdisjoint(key for key, _ in labels)  # Prometheus sets these itself
