"""What pages read is cached for all viewers of a tick, and read again when something changes."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from django.core.cache import cache
from django.utils import timezone

from controlplane.fleet.models import Agent
from controlplane.runtime import ticks
from controlplane.runtime.redis import shared
from controlplane.telemetry.models import Cursor
from frontend import build
from frontend.queries import figures as queries
from frontend.queries import fleet
from frontend.queries.cache import kept, latest_of_job, of_cluster, of_job
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


def test_those_who_ask_meanwhile_wait_for_the_first() -> None:
    read, begun, released = counted(), Event(), Event()

    def slowly() -> int:
        begun.set()
        assert released.wait(30)
        return read()

    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(kept, "slow", slowly)
        assert begun.wait(30)
        others = [threads.submit(kept, "slow", slowly) for _ in range(2)]
        assert kept("another", lambda: 5) == 5
        released.set()
        assert [each.result(30) for each in (first, *others)] == [1, 1, 1]


def test_a_failed_read_is_repeated_by_the_next() -> None:
    def fail() -> int:
        raise ValueError("unreadable")

    with pytest.raises(ValueError, match="unreadable"):
        kept("failing", fail)
    assert kept("failing", lambda: 7) == 7


def test_nothing_is_a_value_too() -> None:
    read = counted()
    assert [kept("nothing", lambda: read() and None) for _ in range(3)] == [None] * 3
    assert read() == 2


def test_who_has_waited_for_long_reads_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first may be stuck in a database that does not answer."""
    monkeypatch.setattr("frontend.queries.cache.WAIT_S", 0.01)
    begun, released = Event(), Event()

    def stuck() -> int:
        begun.set()
        assert released.wait(30)
        return 1

    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(kept, "stuck", stuck)
        assert begun.wait(30)
        assert kept("stuck", lambda: 2) == 2
        released.set()
        assert first.result(30) == 1


def test_of_large_values_only_the_latest_is_kept() -> None:
    job, read = factories.make_job(), counted()
    assert [latest_of_job("traces", job, read) for _ in range(2)] == [1, 1]
    job.iteration += 1
    assert [latest_of_job("traces", job, read) for _ in range(2)] == [2, 2]
    job.iteration -= 1
    assert latest_of_job("traces", job, read) == 3
    assert latest_of_job("others", job, read) == 4


def test_charts_of_one_tick_read_the_reports_and_the_marks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    job = factories.demo_job()
    reads, mark_reads = counted(), counted()
    read, read_marks = queries.traces, build.marks
    monkeypatch.setattr(queries, "traces", lambda *given: reads(given) and read(*given))
    monkeypatch.setattr(build, "marks", lambda job: mark_reads(job) and read_marks(job))
    cache.clear()
    for name in ("batch-size", "iteration-time", "convergence"):
        build.build_figure(name, job, {})
    assert (reads(), mark_reads()) == (2, 2)
    build.build_figure("batch-size", job, {"ranks": "0,1"})
    build.build_figure("batch-size", job, {"top": "1"})
    assert reads() == 5


def test_cards_are_those_of_the_last_tick(redis_url: str) -> None:
    factories.make_agents(2)
    assert len(fleet.machines_now()) == 2
    Agent.objects.create(name="late", credential_digest="1" * 60, seen_at=timezone.now())
    assert len(fleet.machines_now()) == 2
    ticks.publish(shared(), fleet=True)
    assert len(fleet.machines_now()) == 3
