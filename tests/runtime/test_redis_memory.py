"""How much room Redis has left: the operator is told before it is full."""

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from django.test import Client as Browser

from controlplane.runtime.redis import Client
from controlplane.runtime.redis_memory import RedisMemory, redis_memory

GB = 10**9


@pytest.fixture
def limited(client: Client) -> Iterator[Client]:
    """A Redis that has a fifth more than it uses."""
    before = client.config_get("maxmemory*")
    client.config_set("maxmemory", int(client.info("memory")["used_memory"] * 1.2))
    yield client
    for name in ("maxmemory", "maxmemory-policy"):
        client.config_set(name, before[name])


def told(used: int, limit: int, *, is_set: bool = True, policy: str = "noeviction") -> str:
    return RedisMemory(used=used, limit=limit, is_set=is_set, policy=policy).sentence


def test_nothing_is_reported_while_there_is_room() -> None:
    assert [told(GB, 2 * GB), told(GB, 0, is_set=False), told(7 * GB, 10 * GB)] == ["", "", ""]


def test_a_redis_that_is_nearly_full_is_reported_with_its_limit_and_the_cure() -> None:
    assert told(8 * GB, 10 * GB) == (
        "Redis uses 8,000 of 10,000 MB, its limit (maxmemory). When it is full, it rejects writes, "
        "and all jobs stop: raise maxmemory, stop jobs, or check that ingest keeps up."
    )
    assert told(8 * GB, 10 * GB, is_set=False).startswith("Redis uses 8,000 of 10,000 MB, the memory of its machine.")


def test_a_redis_that_evicts_keys_causes_a_warning_at_once() -> None:
    assert told(0, GB, policy="allkeys-lru").startswith("Redis evicts keys when it is full (maxmemory-policy is all")
    assert told(0, GB, is_set=False, policy="allkeys-lru") == ""


@pytest.mark.django_db
def test_who_watches_is_notified_before_it_is_full(limited: Client) -> None:
    assert redis_memory(limited).is_set
    browser = Browser()
    reply = browser.get("/readyz")
    assert reply.status_code == 200
    assert reply.json()["warnings"][0].startswith("Redis uses ")
    browser.force_login(User.objects.create_superuser("ann"))
    assert "paceline_redis_limit_bytes" in browser.get("/metrics").content.decode()
    assert "When it is full, it rejects writes" in browser.get("/").content.decode()
