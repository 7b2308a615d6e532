"""The page of the control plane's own health: which part is not well, and what to do about it."""

from typing import Any

import pytest
from django.test import Client

from controlplane.fleet.models import Agent
from controlplane.runtime.health import Gateway, Health, Sample, Server, Streams
from frontend.queries.system import Part, parts, polyline
from tests.frontend import factories
from tests.frontend.test_pages import text_of

WELL: dict[str, Any] = {
    "at_ms": 1_772_443_800_000,
    "database": Server(ms=1.2, version="PostgreSQL 16.4", used_bytes=2**20),
    "redis": Server(ms=0.4, version="Redis 7.2.1", used_bytes=2**20, limit_bytes=2**30, clients=12),
    "gateways": (Gateway(host="web-1", silent_s=0.3, pages=3, machines=9),),
    "deciders": 1,
    "queued": {"decisions": 0, "history": 2},
    "beat_s": 0.8,
    "ingesting": True,
    "streams": Streams(jobs=2, lag_s=0.4, waiting=120, added=900),
    "decision_p50_s": 0.004,
    "decision_p95_s": 0.011,
}


def judged(**changes: Any) -> dict[str, Part]:
    return {part.name: part for part in parts(Health(**WELL | changes), [])}


def test_when_all_is_well_every_part_reports_it_and_none_gives_advice() -> None:
    assert {(part.state, part.remedy) for part in judged().values()} == {("healthy", "")}


@pytest.mark.parametrize(
    ("changes", "name", "state", "remedy"),
    [
        ({"deciders": 0}, "decisions", "down", "worker -Q decisions"),
        ({"queued": {"decisions": 51}}, "decisions", "degraded", "start another Celery worker"),
        ({"decision_p95_s": 0.4}, "decisions", "degraded", "Decision latency is above"),
        ({"ingesting": False}, "history", "down", "worker -Q history"),
        ({"streams": Streams(jobs=1, lag_s=31.0)}, "history", "degraded", "catches up when the rate drops"),
        ({"streams": Streams(sentence="Ingest is stalled.")}, "history", "degraded", "Ingest is stalled."),
        ({"beat_s": 40.0}, "beat", "down", "celery -A controlplane.config beat"),
        ({"beat_s": None}, "beat", "down", "Start beat"),
        (
            {"redis": Server(ms=1, version="Redis 7", used_bytes=9, limit_bytes=10)},
            "redis",
            "degraded",
            "raise maxmemory",
        ),
        ({"redis": None, "faults": {"redis": "no answer"}}, "redis", "down", "check REDIS_URL"),
        ({"database": None, "faults": {"database": "disk full"}}, "database", "down", "check DATABASE_URL"),
        ({"gateways": (Gateway(host="web-2", silent_s=9, pages=0, machines=0),)}, "web", "degraded", "web-2 (9 s)"),
    ],
)
def test_a_part_that_is_not_well_reports_what_to_do(
    changes: dict[str, Any], name: str, state: str, remedy: str
) -> None:
    found = judged(**changes)
    assert found[name].state == state
    assert remedy in found[name].remedy
    others = {part.state for part in found.values() if part.name != name}
    assert others == ({"unknown", "healthy"} if "redis" in changes.get("faults", {}) else {"healthy"})


def test_a_trend_begins_at_the_left_and_its_highest_touches_the_top() -> None:
    assert (polyline([0.0, 2.0, 1.0]), polyline([1.0])) == ("0.0,23.0 50.0,1.0 100.0,12.0", "")


def test_trends_are_of_the_last_hour() -> None:
    past = [
        Sample(at_ms=k, lag_s=k, waiting=0, added=0, queued=0, redis_bytes=1, pages=k, decision_p95_s=None)
        for k in range(2)
    ]
    found = {part.name: part.trend for part in parts(Health(**WELL), past)}
    assert (found["history"], found["beat"]) == ("0.0,23.0 100.0,1.0", "")


@pytest.mark.django_db
def test_the_page_names_versions_and_machines_that_differ(viewer: Client, redis_url: str) -> None:
    for agent in factories.make_agents(3):
        Agent.objects.filter(pk=agent.pk).update(version="0.1.0" if agent.name != "machine-2" else "0.0.9")
    page = text_of(viewer, "/system/")
    assert "2 of 6 components need attention" in page  # No one decides here, and no beat runs.
    assert "No decision process is running" in page
    assert "machine-2 (0.0.9)" in page
    assert "Agents online 0.1.0 on 2 machines" in page
    assert "2 of 6 components need attention" in text_of(viewer, "/system/live/")


@pytest.mark.django_db
def test_without_redis_the_page_still_opens_and_reports_it(viewer: Client, settings: Any, tmp_path: Any) -> None:
    settings.REDIS_URL = f"unix://{tmp_path}/nobody.sock"
    page = text_of(viewer, "/system/")
    assert "Unknown while Redis is unreachable." in page
    assert "check REDIS_URL" in page
