"""Which Redis this is, and in which life: taken over, refused, left behind, and whole again."""

import pytest
from asgiref.sync import async_to_sync
from celery.signals import worker_init
from django.db import OperationalError

from controlplane.core.events import ControlPlaneResumed
from controlplane.core.states import JobState
from controlplane.fleet.models import Agent, Reservation
from controlplane.jobs.models import Job
from controlplane.runtime import agents, log, names, redis_identity, tasks
from controlplane.runtime.coordinator import coordinate
from controlplane.runtime.faults import armed
from controlplane.runtime.lease import Lease, LeaseLost
from controlplane.runtime.models import KnownRedis
from controlplane.runtime.recovery import AFTER_LOSS
from controlplane.runtime.redis import Client, connect_async
from controlplane.runtime.redis_identity import ForeignRedis, settle
from tests.runtime.recovery.support import (
    Tail,
    copy_all,
    done,
    lose_everything,
    recover,
    replayed_as_stored,
    reports,
    say,
)
from tests.runtime.support import Died, Driver, die

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_job_is_not_whole_before_its_agents_have_their_orders_again(client: Client, driver: Driver, job: int) -> None:
    lose_everything(client)
    settle(client)
    driver.engines = driver.fresh_engines()
    with armed("recovery.begun", die), pytest.raises(Died):
        coordinate(job, driver.around())
    assert not settle(client)
    client.delete(names.state(job))
    driver.engines = driver.fresh_engines()
    coordinate(job, driver.around())
    assert settle(client)
    assert client.hlen(names.agent_processes(Agent.objects.get().pk)) == 3


def test_no_one_waits_for_the_holder_of_a_job_when_redis_ended(
    client: Client, driver: Driver, job: int, enqueued: list[int]
) -> None:
    settle(client)
    before = Tail(client)
    lease = Lease.take(client, job)
    assert lease is not None
    held = client.get(names.state(job))
    before.lose()
    client.set(names.state(job), held.rpartition(b":")[0] + b":an earlier one", px=names.HELD_MS)
    enqueued.clear()
    assert not settle(client)
    assert (enqueued, client.get(names.state(job))) == ([job], b"queued")
    with pytest.raises(LeaseLost):
        lease.release("idle")
    present = Lease.take(client, job)
    assert present is not None
    enqueued.clear()
    assert not settle(client)
    assert enqueued == []
    assert present.release("queued")


def test_an_empty_redis_is_taken_over_once(client: Client) -> None:
    assert settle(client)
    first = client.get(names.IDENTITY)
    assert settle(client)
    client.flushall()
    assert settle(client)
    assert client.get(names.IDENTITY) != first
    assert KnownRedis.objects.count() == 2


def test_who_looked_before_another_took_a_redis_over_does_not_do_it_again(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = redis_identity.own_identity
    looks = iter([lambda client: "", look])
    assert redis_identity.recognise(client)
    taken = look(client)
    with monkeypatch.context() as looked_before:
        looked_before.setattr(redis_identity, "own_identity", lambda client: next(looks)(client))
        assert not redis_identity.recognise(client)
    assert (look(client), redis_identity.recognise(client)) == (taken, True)


def test_the_redis_of_another_database_is_refused_and_left_as_it_is(client: Client, job: int) -> None:
    client.set(names.IDENTITY, "somebody else's")
    before = {key: client.dump(key) for key in client.keys("*")}
    with pytest.raises(ForeignRedis, match="belongs to another database"):
        tasks.rescue()
    assert {key: client.dump(key) for key in client.keys("*")} == before


def test_jobs_that_need_no_database_are_queued_while_it_is_away(
    client: Client, job: int, enqueued: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_away() -> bool:
        raise OperationalError("server closed the connection")

    client.delete(names.state(job))
    log.append_event(job, ControlPlaneResumed(who="test"), client=client)
    client.delete(names.state(job))  # as when its task was lost
    enqueued.clear()
    monkeypatch.setattr(redis_identity, "settle", is_away)
    with pytest.raises(OperationalError):
        tasks.rescue()
    assert enqueued == [job]


def test_a_worker_of_celery_does_not_even_start_on_a_foreign_redis(client: Client, job: int) -> None:
    client.set(names.IDENTITY, "somebody else's")
    with pytest.raises(SystemExit, match="The Redis at REDIS_URL belongs to another database"):
        worker_init.send(sender=None)
    client.flushall()
    worker_init.send(sender=None)


def test_a_redis_that_was_left_behind_is_emptied_of_jobs_when_it_comes_back(
    client: Client, driver: Driver, job: int
) -> None:
    left_behind = Tail(client)
    lose_everything(client)
    recover(client, driver, job)
    say(client, driver, job, 0)
    copy_all(client)
    left_behind.lose(restarted=False)
    recover(client, driver, job)
    copy_all(client)
    assert Job.objects.get(pk=job).incarnation == 2 * AFTER_LOSS
    assert reports() == done(1)
    assert replayed_as_stored(job)


def test_every_agent_looks_again_once_everyone_is_whole(client: Client) -> None:
    agent = Agent.objects.create(name="m1", credential_digest="d").pk  # what it is to run may not be copied yet
    heard = client.pubsub()
    heard.subscribe(names.agent_moved(agent))
    assert settle(client)
    assert [m["type"] for m in iter(lambda: heard.get_message(timeout=0.2), None)] == ["subscribe", "message"]
    heard.close()


def test_no_one_is_notified_before_everyone_is_whole(client: Client, driver: Driver, job: int) -> None:
    lose_everything(client)
    assert not redis_identity.settle(client)
    assert client.get(names.RECOVERED) is None


def test_agents_are_notified_to_continue_and_nothing_before_that(client: Client, driver: Driver, job: int) -> None:
    agent = Agent.objects.get().pk

    @async_to_sync
    async def told() -> list[str] | None:
        asking = connect_async()
        orders = await agents.current_orders(asking, agent, durable=0)
        await asking.aclose()
        return None if orders is None else [order.instance for order in orders.processes]

    assert told() == ["s0.0.1", "w0.0.1", "w1.0.1"]
    lose_everything(client)
    assert told() is None
    recover(client, driver, job)
    assert told() == ["s0.0.1", "w0.0.1", "w1.0.1"]


def test_slots_of_a_job_that_is_over_come_back_though_its_log_is_gone(client: Client, driver: Driver, job: int) -> None:
    Job.objects.update(state=JobState.SUCCEEDED)
    lose_everything(client)
    assert settle(client)
    assert not Reservation.objects.exists()
