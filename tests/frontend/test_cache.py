"""What pages read is cached for all viewers of a tick, and read again when something changes."""

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from controlplane.fleet.models import Agent
from controlplane.runtime import ticks
from controlplane.runtime.redis import shared
from controlplane.telemetry.models import Cursor
from frontend.queries import fleet
from frontend.queries.cache import of_cluster, of_job
from tests.frontend import factories

pytestmark = pytest.mark.django_db


def counted() -> Callable[..., int]:
    """Tells how often it was called."""
    calls: list[object] = []

    def read(*args: object) -> int:
        calls.append(args)
        return len(calls)

    return read


def test_the_cluster_is_read_once_per_tick(redis_url: str) -> None:
    read = counted()
    assert [of_cluster("all", read) for _ in range(3)] == [1, 1, 1]
    ticks.publish(shared(), fleet=True)
    assert [of_cluster("all", read), of_cluster("all", read)] == [2, 2]
    assert of_cluster("others", read) == 3


def test_without_redis_it_is_read_each_time(settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    read = counted()
    assert [of_cluster("all", read) for _ in range(2)] == [1, 2]


def test_a_job_is_read_anew_when_its_streams_were_copied_further() -> None:
    job, other, read = factories.make_job(), factories.make_job(), counted()
    Cursor.objects.create(job=job, stream="events", incarnation=1, position=7)
    assert [of_job("lanes", job, read) for _ in range(2)] == [1, 1]
    assert of_job("lanes", other, read) == 2
    Cursor.objects.filter(job=job).update(position=8)
    assert [of_job("lanes", each, read) for each in (job, other)] == [3, 2]
    job.iteration += 1
    assert of_job("lanes", job, read) == 4


def test_cards_are_those_of_the_last_tick(redis_url: str) -> None:
    factories.make_agents(2)
    assert len(fleet.machines_now()) == 2
    Agent.objects.create(name="late", credential_digest="1" * 60, seen_at=timezone.now())
    assert len(fleet.machines_now()) == 2
    ticks.publish(shared(), fleet=True)
    assert len(fleet.machines_now()) == 3
