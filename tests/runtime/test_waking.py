"""Idle, queued, held: who enqueues, who may go idle, and what is found again."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from celery import Celery
from kombu import Queue
from redis.exceptions import RedisError

from controlplane.core.events import StopRequested
from controlplane.runtime import liveness, log, names, queue
from controlplane.runtime.broker_address import broker_url
from controlplane.runtime.coordinator import coordinate
from controlplane.runtime.lease import Lease
from controlplane.runtime.redis import Client, connect, redis_url
from controlplane.runtime.scripts import RESCUE, SEIZE
from tests.runtime.support import JOB, SPEC, Driver, logged, report, submit


@pytest.fixture
def process(client: Client) -> Iterator[str]:
    """The name of this process, which says that it lives."""
    liveness.begin(client)
    yield names.process(liveness.me())
    liveness.end()


def rescued(client: Client) -> list[bytes]:
    """The jobs that would be enqueued."""
    keys = [names.LIVE_JOBS, queue.DECISIONS]
    found: list[bytes] = RESCUE.run(client, keys, names.QUEUED_MS, names.FETCHED_MS)
    return found


def test_a_job_whose_task_was_fetched_by_a_process_that_died_is_queued_again_soon(client: Client) -> None:
    submit(client)
    assert rescued(client) == []
    client.pexpire(names.state(JOB), names.QUEUED_MS - names.FETCHED_MS - 1)  # as a while later
    client.lpush(queue.DECISIONS, b"a task that waits, maybe its own")
    assert rescued(client) == []
    client.delete(queue.DECISIONS)
    assert rescued(client) == [str(JOB).encode()]
    assert client.pttl(names.state(JOB)) > names.QUEUED_MS - names.FETCHED_MS
    assert rescued(client) == []


def test_a_job_whose_holder_died_is_queued_before_its_lease_expires(client: Client, process: str) -> None:
    submit(client)
    assert Lease.take(client, JOB) is not None
    assert rescued(client) == []
    client.delete(process)  # as when it says no more that it lives
    assert rescued(client) == [str(JOB).encode()]
    assert client.get(names.state(JOB)) == b"queued"


def test_a_restarted_process_evicts_dead_processes_of_its_machine(client: Client, process: str) -> None:
    gone, mine = liveness.where(999_999_999), liveness.where()
    for name, place in {"gone": gone, "mine": mine, "far": mine.replace(socket.gethostname(), "elsewhere")}.items():
        client.set(names.process(name), place)
    liveness.begin(client)
    kept = {names.process(name).encode() for name in ("far", liveness.me())}
    assert set(client.keys(names.process("*"))) == kept


def test_64_appends_at_once_enqueue_one_task(client: Client, enqueued: list[int]) -> None:
    submit(client)
    client.delete(names.state(JOB))
    enqueued.clear()
    together = Barrier(16)

    def append(worker: int) -> None:
        own = connect()
        together.wait()
        for number in range(4):
            log.append_event(JOB, report(number + 2, instance=f"w{worker}"), client=own)
        own.close()

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(append, range(16)))
    assert (enqueued, len(logged(client))) == ([JOB], 65)


def test_a_log_begins_once(client: Client, enqueued: list[int]) -> None:
    assert [log.start_log(JOB, SPEC, client=client) for _ in range(3)] == [True, False, False]
    assert (enqueued, len(logged(client))) == ([JOB], 1)


def test_a_job_without_a_log_takes_no_events(client: Client, enqueued: list[int]) -> None:
    with pytest.raises(log.LogClosed, match="job 7: has no usable log"):
        log.append_event(JOB, report(2), client=client)
    assert client.keys("*") == []


def test_a_job_that_is_over_takes_no_events(client: Client, driver: Driver) -> None:
    submit(client)
    log.append_event(JOB, StopRequested(actor="ann"), client=client)
    coordinate(JOB, driver.around())
    with pytest.raises(log.LogClosed, match="job 7: is over"):
        log.append_event(JOB, report(2), client=client)
    assert client.get(names.state(JOB)) is None


def test_a_lease_whose_process_died_is_free_before_it_expires(client: Client) -> None:
    liveness.begin(client, names.writer)
    first, second = f"{liveness.me()}:1", "somebody:2"
    assert SEIZE.run(client, [names.INGEST_LEASE], first, names.HELD_MS)
    assert not SEIZE.run(client, [names.INGEST_LEASE], second, names.HELD_MS)
    client.delete(names.writer(liveness.me()))  # as when it says no more that it lives
    assert SEIZE.run(client, [names.INGEST_LEASE], second, names.HELD_MS)
    assert client.get(names.INGEST_LEASE) == second.encode()
    assert 0 < client.pttl(names.INGEST_LEASE) <= names.HELD_MS
    liveness.end()


def test_a_lease_without_a_heartbeat_is_waited_for(client: Client) -> None:
    assert SEIZE.run(client, [names.INGEST_LEASE], ":1", names.HELD_MS)
    assert not SEIZE.run(client, [names.INGEST_LEASE], ":2", names.HELD_MS)


def test_an_append_that_races_with_going_idle_is_never_stranded(client: Client, driver: Driver) -> None:
    """Thousands of interleavings: each append comes while the holder of the last one is about to go idle."""
    submit(client)
    appends = 1_500

    def coordinate_whenever_enqueued() -> int:
        driver.client, ran = connect(), 0
        while not driver.stopping.is_set():
            if ran < len(driver.enqueued):
                coordinate(JOB, driver.around())
                ran += 1
        driver.client.close()
        return ran

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(coordinate_whenever_enqueued)
        try:
            answered = (_append_and_see_it_answered(client, number + 2) for number in range(appends))
            stranded = not all(answered)
        finally:
            driver.stopping.set()
    assert not stranded
    assert running.result() > appends // 100, "hardly any race: the job seldom went idle"


def _append_and_see_it_answered(client: Client, number: int) -> bool:
    cursor = log.append_event(JOB, report(number), client=client).encode()
    looks = (client.hget(names.engine(JOB), "cursor") == cursor for _ in range(20_000))
    return any(looks)


def test_a_task_that_was_lost_is_found_again(client: Client, driver: Driver) -> None:
    submit(client)
    assert rescued(client) == []
    client.delete(names.state(JOB))  # as when "queued" expires
    assert rescued(client) == [b"7"]
    assert client.get(names.state(JOB)) == b"queued"
    coordinate(JOB, driver.around())
    assert rescued(client) == []


def test_queued_and_held_expire(client: Client, driver: Driver) -> None:
    submit(client)
    assert 0 < client.pttl(names.state(JOB)) <= 5_000
    assert Lease.take(client, JOB) is not None
    assert 0 < client.pttl(names.state(JOB)) <= 5_000


def test_routes_are_written_again_to_an_empty_redis(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    celery = Celery(broker=broker_url(redis_url()), set_as_current=False)
    celery.conf.task_queues = [Queue(name, routing_key=name) for name in ("decisions", "history")]
    monkeypatch.setattr(queue, "current_app", celery)
    queue.enqueue(JOB)
    client.flushall()
    queue.declare()
    assert {key.decode() for key in client.keys("_kombu.binding.*")}
    queue.enqueue(JOB)
    assert not queue.is_empty(client)


def test_an_unreachable_queue_is_reported_as_an_unreachable_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = Celery(broker="redis://127.0.0.1:1/0", set_as_current=False)
    nowhere.conf.update(task_publish_retry=False, broker_transport_options={"max_retries": 1, "interval_start": 0})
    monkeypatch.setattr(queue, "current_app", nowhere)
    for call in (lambda: queue.enqueue(JOB), queue.request_schedule):
        with pytest.raises(RedisError, match="Celery's queue is out of reach"):
            call()
