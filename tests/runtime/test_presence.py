"""Signs of life, machines that are gone, slots for jobs that wait, and silences of our own."""

import socket
from threading import Event, Thread
from typing import Any

import msgspec
import pytest
from celery import Celery
from django.contrib.auth.models import User

from controlplane.core.events import ControlPlaneResumed, JobSubmitted, ProcessDied
from controlplane.fleet.models import Agent, AgentSample
from controlplane.jobs.models import Job
from controlplane.protocol.codec import encode
from controlplane.protocol.orders import ProcessOrder
from controlplane.protocol.spec import spec_document
from controlplane.runtime import downtime, liveness, log, names, presence, queue, reaper
from controlplane.runtime.downtime import Pulse, announce, beat_until
from controlplane.runtime.queue import enqueue as really_enqueue
from controlplane.runtime.redis import Client
from controlplane.runtime.scripts import RECORD_HEARTBEATS
from tests.runtime.support import SPEC, logged

pytestmark = pytest.mark.django_db(transaction=True)

SLOT = {"emulate": None}


def new_job(**fields: Any) -> int:
    user, _ = User.objects.get_or_create(username="ann")
    return Job.objects.create(name="digits", spec=spec_document(SPEC), submitted_by=user, **fields).pk


def new_agent(name: str = "m1", *, slots: int = 2, servers: int = 1) -> int:
    offered = {"slots": [SLOT] * slots, "server_slots": servers}
    return Agent.objects.create(name=name, credential_digest=name, state="online", **offered).pk


def heard(client: Client, agent: int, *, ago_ms: int) -> None:
    RECORD_HEARTBEATS.run(client, [names.AGENTS], str(agent), ago_ms, '{"cpu":0.5,"memory":0.25,"disk_read":4096.0}')


def order_process(client: Client, agent: int, job: int) -> None:
    order = ProcessOrder(job=job, role="worker", index=0, instance="w0.0.1", slot=0, key="00", spec=SPEC)
    client.hset(names.agent_processes(agent), f"{job}:worker:0", b"w0.0.1\0" + encode(order))


def events(client: Client, job: int) -> list[Any]:
    return [entry.event for entry in logged(client, job)]


def test_a_heartbeat_has_the_time_of_redis(client: Client) -> None:
    heard(client, 3, ago_ms=500)
    seconds, microseconds = client.time()
    sign = presence.agents_now(client)[3]
    assert 500 <= seconds * 1000 + microseconds // 1000 - sign.at_ms < 2_000
    assert sign.load == {"cpu": 0.5, "memory": 0.25, "disk_read": 4096.0}


def test_machines_count_afresh_while_no_gateway_could_hear_them(client: Client, enqueued: list[int]) -> None:
    agent = new_agent()
    heard(client, agent, ago_ms=60_000)
    RECORD_HEARTBEATS.run(client, [names.GATEWAYS], "here", 5_000, "0 0 0 0")
    now_ms = int(client.time()[0]) * 1000
    client.set(names.REAPER_BEAT, now_ms)
    client.hset(names.MISSING_AGENTS, str(agent), now_ms - 60_000)
    assert reaper.reap_offline_agents(client) == []
    RECORD_HEARTBEATS.run(client, [names.GATEWAYS], "here", 0, "0 0 0 0")
    client.hset(names.MISSING_AGENTS, str(agent), now_ms - 60_000)
    assert reaper.reap_offline_agents(client) == [agent]


def test_a_gateway_that_begins_takes_the_place_of_those_of_its_machine_that_have_ended(client: Client) -> None:
    here, elsewhere, runs = socket.gethostname(), "another machine", liveness.where()
    ended = liveness.where(999_999_999)
    for name in (ended, runs, f"{elsewhere}:1", here):
        RECORD_HEARTBEATS.run(client, [names.GATEWAYS], name, 5_000, "")
        client.hset(names.GATEWAY_SOCKETS, name, "1 2")
    presence.gateway_begins(client)
    left = {runs, f"{elsewhere}:1", here}
    assert set(presence.gateways_now(client)) == left
    assert {name.decode() for name in client.hkeys(names.GATEWAY_SOCKETS)} == left


def test_a_gateway_that_does_not_come_back_is_forgotten_with_its_sockets(client: Client) -> None:
    for name, ago_ms in {"a:1": 100, "a:2": 60_000}.items():
        RECORD_HEARTBEATS.run(client, [names.GATEWAYS], name, ago_ms, "")
        client.hset(names.GATEWAY_SOCKETS, name, "1 2")
    assert presence.gateway_trouble(client) == ""
    assert (set(presence.gateways_now(client)), client.hkeys(names.GATEWAY_SOCKETS)) == ({"a:1"}, [b"a:1"])


@pytest.mark.parametrize(
    ("turn_s", "overloaded_s", "ago_ms", "is_trouble"),
    [(0.09, 0.0, 100, False), (0.3, 2.0, 100, True), (0.3, 31.0, 100, False), (0.3, 2.0, 60_000, False)],
    ids=["well", "overloaded", "for long", "gone"],
)
def test_what_an_overloaded_gateway_has_not_read_is_not_missing(
    client: Client, turn_s: float, overloaded_s: float, ago_ms: int, is_trouble: bool
) -> None:
    busy = msgspec.json.encode({presence.TURN: turn_s, presence.OVERLOADED: overloaded_s})
    RECORD_HEARTBEATS.run(client, [names.GATEWAYS], "a:1~x~2", ago_ms, busy)
    RECORD_HEARTBEATS.run(client, [names.GATEWAYS], "b:1", 100, msgspec.json.encode({presence.TURN: 0.01}))
    RECORD_HEARTBEATS.run(client, [names.GATEWAYS], "c:1", 100, "{}")
    sentence = "the gateway on a:1 is overloaded: its event loop takes 0.3 s for a turn"
    assert presence.gateway_trouble(client) == (sentence if is_trouble else "")
    now = reaper._now_ms(client)
    client.set(names.REAPER_BEAT, now)
    client.hset(names.MISSING_AGENTS, "7", 1)
    RECORD_HEARTBEATS.run(client, [names.AGENTS], "7", 60_000, "{}")
    since = reaper._missing_since(client, now)
    assert since == {7: now if is_trouble else 1}, "a reaper that may not see begins to count again"


def test_the_processes_of_a_machine_that_is_gone_have_died(client: Client, enqueued: list[int]) -> None:
    job, agent = new_job(), new_agent()
    log.start_log(job, SPEC, client=client, salt=b"")
    order_process(client, agent, job)
    heard(client, agent, ago_ms=60_000)
    now = reaper._now_ms(client)
    assert reaper.reap_offline_agents(client) == [], "nobody had watched: it counts from now"
    assert Agent.objects.get().state == "offline"
    client.set(names.REAPER_BEAT, now)
    client.hset(names.MISSING_AGENTS, str(agent), now - reaper.GONE_MS - 1)
    assert reaper.reap_offline_agents(client) == [agent]
    died = ProcessDied(
        role="worker",
        index=0,
        instance="w0.0.1",
        status=-1,
        detail="its machine has been unreachable for more than 10 s",
        is_agent_lost=True,
    )
    assert events(client, job) == [JobSubmitted(spec=SPEC), died]
    assert reaper.reap_offline_agents(client) == []
    assert client.hlen(names.agent_processes(agent)) == 0


def test_an_outage_of_the_control_plane_evicts_no_process(client: Client, enqueued: list[int]) -> None:
    agent = new_agent()
    heard(client, agent, ago_ms=60_000)
    now = reaper._now_ms(client)
    client.hset(names.MISSING_AGENTS, str(agent), now - 60_000)
    client.set(names.REAPER_BEAT, now - reaper.BLIND_MS - 1)
    assert reaper.reap_offline_agents(client) == []


def test_machines_that_are_here_are_sampled(client: Client) -> None:
    here, gone = new_agent("m1"), new_agent("m2")
    heard(client, here, ago_ms=100)
    heard(client, gone, ago_ms=60_000)
    assert reaper.sample_presence(client) == 1
    fields = ("agent", "cpu", "memory", "others")
    assert list(AgentSample.objects.values_list(*fields)) == [(here, 0.5, 0.25, {"disk_read": 4096.0})]


@pytest.mark.parametrize("load", ["{}", "0.5 0.25 1 2"], ids=["only hello", "an earlier release"])
def test_a_machine_that_sent_nothing_of_its_load_is_here_and_has_no_sample(client: Client, load: str) -> None:
    RECORD_HEARTBEATS.run(client, [names.AGENTS], str(new_agent()), 100, load)
    assert reaper.sample_presence(client) == 1
    assert not AgentSample.objects.exists()
    assert Agent.objects.get().seen_at is not None


def test_pages_are_notified_of_samples_though_no_job_runs(client: Client) -> None:
    assert (reaper.sample_presence(client), client.get(names.PAGES_SEQUENCE)) == (0, None)
    heard(client, new_agent(), ago_ms=100)
    assert (reaper.sample_presence(client), int(client.get(names.PAGES_SEQUENCE) or 0)) == (1, 1)


def test_the_first_heartbeat_and_one_after_an_outage_are_reported(client: Client, enqueued: list[int]) -> None:
    times = iter([0.0, 0.5, 1.0, 4.0, 4.5])
    beating = Pulse("gateway", clock=lambda: next(times))

    def beat() -> bool:
        silent = beating.beat()
        beating.mark_reported()
        return silent

    assert [beat() for _ in range(5)] == [True, False, False, True, False]
    job = new_job()
    log.start_log(job, SPEC, client=client, salt=b"")
    assert announce(beating.process, client) == 1
    assert events(client, job)[1:] == [ControlPlaneResumed(who=beating.process)]


def test_an_outage_is_reported_until_every_log_has_it(
    client: Client, enqueued: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue goes out of reach between an append and the task that it asks for."""
    first, second = new_job(), new_job()
    for job in (first, second):
        log.start_log(job, SPEC, client=client, salt=b"")
        client.delete(names.state(job))
    stopping, nowhere = Event(), Celery(broker="redis://127.0.0.1:1/0", set_as_current=False)
    nowhere.conf.task_publish_retry = False
    failed = list[int]()

    def enqueue(job: int) -> None:
        if job == first and not failed:
            failed.append(job)
            with monkeypatch.context() as patch:
                patch.setattr(queue, "current_app", nowhere)
                really_enqueue(job)
        if job == second:
            stopping.set()

    monkeypatch.setattr(queue, "enqueue", enqueue)
    monkeypatch.setattr(downtime, "BEAT_S", 0.01)
    beating = Thread(target=beat_until, args=(stopping, "coordinator"))
    beating.start()
    beating.join(30.0)
    assert (failed, stopping.is_set()) == ([first], True)
    assert [type(event) for event in events(client, first)[1:]] == [ControlPlaneResumed] * 2
    assert [type(event) for event in events(client, second)[1:]] == [ControlPlaneResumed]


def test_an_agent_that_was_missed_just_after_its_hello_is_here_again(client: Client, enqueued: list[int]) -> None:
    agent, gone = new_agent(), new_agent("m2")
    for each in (agent, gone):
        heard(client, each, ago_ms=60_000)
    client.hset(names.AGENT_CONNECTIONS, str(agent), "c1")
    reaper.reap_offline_agents(client)
    assert {each.state for each in Agent.objects.all()} == {"offline"}
    for each in (agent, gone):
        heard(client, each, ago_ms=100)
    reaper.reap_offline_agents(client)
    assert {each.pk: each.state for each in Agent.objects.all()} == {agent: "online", gone: "offline"}
