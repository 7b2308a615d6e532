"""For whoever watches the control plane."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from controlplane.jobs.flag_notes import flag_acknowledge, flag_mute
from controlplane.jobs.models import Flag
from controlplane.runtime import names
from controlplane.runtime.redis import shared
from tests.api.conftest import refused
from tests.support.rows import online_agent, reserve, submitted_job

pytestmark = pytest.mark.django_db


def test_it_is_alive(client: Client) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}


def test_it_is_ready_with_database_and_redis(client: Client, redis_url: str) -> None:
    assert (client.get("/readyz").status_code, client.get("/readyz").json()) == (200, {"status": "ok"})


def test_without_redis_it_is_not_ready_and_says_why(client: Client, settings: Any, tmp_path: Any) -> None:
    settings.REDIS_URL = f"unix://{tmp_path}/nobody.sock"
    found = refused(client.get("/readyz"))
    assert (found["status"], found["detail"].partition(":")[0]) == (503, "redis")


def test_with_the_redis_of_another_database_it_is_not_ready_and_names_the_cure(client: Client, redis_url: str) -> None:
    shared().set(names.IDENTITY, "somebody else's")
    found = refused(client.get("/readyz"))
    assert found["status"] == 503
    assert "belongs to another database" in found["detail"]
    assert "name an empty one" in found["detail"]


def test_prometheus_finds_jobs_machines_and_slots(client: Client) -> None:
    job = submitted_job(User.objects.create_user("ada"))
    for rank in range(3):
        at = timezone.now()
        Flag.objects.create(job=job, key=f"f{rank}", rank=rank, kind="compute", persistence="lasting", opened_at=at)
    flag_acknowledge(flag=Flag.objects.get(rank=1), actor="ada")
    flag_mute(flag=Flag.objects.get(rank=2), actor="ada", until=timezone.now() + timedelta(hours=1))
    online_agent("m1", slots=3, server_slots=2)
    reserve(7, {}, workers=2, servers=1)
    reply = client.get("/metrics")
    lines = reply.content.decode().splitlines()
    assert reply["Content-Type"].startswith("text/plain; version=")
    assert {
        'paceline_jobs{state="submitted"} 1.0',
        'paceline_jobs{state="running"} 0.0',
        'paceline_agents{state="online"} 1.0',
        'paceline_slots_offered{role="worker"} 3.0',
        'paceline_slots_reserved{role="server"} 1.0',
        "paceline_flags_open 1.0",
    } <= set(lines)
    assert any(line.startswith("process_resident_memory_bytes ") for line in lines)
