"""How the control plane itself stands: read from what its parts leave behind, and kept for an hour."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from controlplane.jobs.models import Job
from controlplane.protocol.spec import spec_document
from controlplane.runtime import liveness, names, reaper
from controlplane.runtime.health import Sample, rates, read_health, sample, samples
from controlplane.runtime.redis import Client
from controlplane.telemetry.models import Cursor
from tests.runtime.support import SPEC, submit

pytestmark = pytest.mark.django_db


def a_sample(at_ms: int, added: int) -> Sample:
    return Sample(at_ms=at_ms, lag_s=0, waiting=0, added=added, queued=0, redis_bytes=0, pages=0, decision_p95_s=None)


def test_an_idle_control_plane_answers_and_no_one_decides(client: Client) -> None:
    found = read_health(client)
    assert (found.faults, found.deciders, found.beat_s, found.ingesting) == ({}, 0, None, False)
    assert found.redis is not None
    assert found.redis.version.startswith("Redis ")
    assert found.database is not None
    assert found.database.used_bytes > 0


def test_what_parts_leave_behind_is_found(client: Client) -> None:
    liveness.begin(client)
    liveness.end()
    reaper.reap_offline_agents(client)
    client.set(names.INGEST_LEASE, "somebody", px=5_000)
    client.rpush("decisions", "a task")
    found = read_health(client)
    assert (found.deciders, found.ingesting, found.queued) == (1, True, {"decisions": 1, "history": 0})
    assert found.beat_s is not None
    assert found.beat_s < 600


def test_ingest_lags_by_what_it_has_not_copied(client: Client, enqueued: list[int]) -> None:
    job = Job.objects.create(name="digits", spec=spec_document(SPEC), submitted_by=User.objects.create(username="ann"))
    submit(client, job.pk)
    newest = client.xinfo_stream(names.events(job.pk))["last-generated-id"].decode()
    cursor = Cursor.objects.create(job=job, stream="events", position=newest)
    assert read_health(client).streams.lag_s == 0.0
    Cursor.objects.filter(pk=cursor.pk).update(position=f"{int(newest.partition('-')[0]) - 7_000}-0")
    streams = read_health(client).streams
    assert (streams.lag_s, streams.jobs, streams.added) == (7.0, 1, streams.waiting)


def test_a_redis_out_of_reach_is_reported_and_the_database_is_read_anyway(settings: Any, tmp_path: Any) -> None:
    settings.REDIS_URL = f"unix://{tmp_path}/nobody.sock"
    found = read_health()
    assert (list(found.faults), found.redis, found.database is not None) == (["redis"], None, True)
    assert samples() == []


def test_samples_are_kept_in_order_and_not_for_ever(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.runtime.health.SAMPLES", 2)
    noted = [sample(client) for _ in range(3)]
    assert samples(client) == noted[1:]


def test_rates_are_differences_over_time_and_never_negative() -> None:
    assert rates([a_sample(0, 0), a_sample(10_000, 50), a_sample(20_000, 20)]) == [5.0, 0.0]
