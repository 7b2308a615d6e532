"""Signs of life, machines that are gone, slots for jobs that wait, and silences of our own."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from controlplane.core.events import ControlPlaneResumed, JobSubmitted, ProcessDied, SlotsAssigned, StopRequested
from controlplane.fleet.models import Agent, AgentSample, Reservation
from controlplane.jobs.models import Job
from controlplane.protocol.codec import encode
from controlplane.protocol.orders import ProcessOrder
from controlplane.protocol.spec import spec_document
from controlplane.runtime import log, names, presence, reaper, scheduler
from controlplane.runtime.coordinator import coordinate
from controlplane.runtime.pulse import Pulse, announce
from controlplane.runtime.redis import Client
from controlplane.runtime.scripts import HEARD
from tests.runtime.support import SPEC, Driver, logged

pytestmark = pytest.mark.django_db(transaction=True)

SLOT = {"emulate": None}


def new_job(**fields: Any) -> int:
    user, _ = User.objects.get_or_create(username="ann")
    return Job.objects.create(name="digits", spec=spec_document(SPEC), submitted_by=user, **fields).pk


def new_agent(name: str = "m1", *, slots: int = 2, servers: int = 1) -> int:
    offered = {"slots": [SLOT] * slots, "server_slots": servers}
    return Agent.objects.create(name=name, credential_digest=name, state="online", **offered).pk


def heard(client: Client, agent: int, *, ago_ms: int) -> None:
    HEARD.run(client, [names.AGENTS], str(agent), ago_ms, "0.5 0.25 1 2")


def order_process(client: Client, agent: int, job: int) -> None:
    order = ProcessOrder(job=job, role="worker", index=0, instance="w0.0.1", slot=0, key="00", spec=SPEC)
    client.hset(names.agent_processes(agent), f"{job}:worker:0", b"w0.0.1\0" + encode(order))


def events(client: Client, job: int) -> list[Any]:
    return [entry.event for entry in logged(client, job)]


def test_a_sign_of_life_has_the_time_of_redis(client: Client) -> None:
    heard(client, 3, ago_ms=500)
    seconds, microseconds = client.time()
    sign = presence.agents_now(client)[3]
    assert 500 <= seconds * 1000 + microseconds // 1000 - sign.at_ms < 2_000
    assert sign.load == presence.Load(cpu=0.5, memory=0.25, bytes_sent=1, bytes_received=2)


def test_the_processes_of_a_machine_that_is_gone_have_died(client: Client, enqueued: list[int]) -> None:
    job, agent = new_job(), new_agent()
    log.start_log(job, SPEC, client=client)
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
        detail="its machine has been out of reach for more than 10 s",
    )
    assert events(client, job) == [JobSubmitted(spec=SPEC), died]
    assert reaper.reap_offline_agents(client) == []
    assert client.hlen(names.agent_processes(agent)) == 0


def test_an_outage_of_the_control_plane_buries_nobody(client: Client, enqueued: list[int]) -> None:
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
    assert list(AgentSample.objects.values_list("agent", "cpu", "memory")) == [(here, 0.5, 0.25)]


def test_the_oldest_job_that_waits_gets_the_slots(client: Client, enqueued: list[int]) -> None:
    agent, first, second = new_agent(), new_job(), new_job()
    assert scheduler.begin_logs() == [first, second]
    assert scheduler.schedule_jobs() == [first]
    assert [type(event) for event in events(client, first)] == [JobSubmitted, SlotsAssigned]
    assert [type(event) for event in events(client, second)] == [JobSubmitted]
    taken = Reservation.objects.order_by("-role", "index").values_list("job_id", "agent", "role", "slot")
    assert list(taken) == [(first, agent, "worker", 0), (first, agent, "worker", 1), (first, agent, "server", 0)]


def test_a_job_whose_row_is_behind_is_not_told_its_slots_again_at_once(client: Client, enqueued: list[int]) -> None:
    new_agent()
    job = new_job()
    scheduler.begin_logs()
    assert [scheduler.schedule_jobs() for _ in range(3)] == [[job], [], []]


def test_slots_for_a_job_that_was_stopped_meanwhile_are_given_back(
    client: Client, enqueued: list[int], driver: Driver
) -> None:
    new_agent()
    job = new_job()
    scheduler.begin_logs()
    log.append_event(job, StopRequested(actor="ann"), client=client)
    coordinate(job, driver.around())
    assert scheduler.schedule_jobs() == []
    assert not Reservation.objects.exists()


def test_the_first_beat_and_a_beat_after_a_silence_are_told(client: Client, enqueued: list[int]) -> None:
    times = iter([0.0, 0.5, 1.0, 4.0, 4.5])
    pulse = Pulse("gateway", clock=lambda: next(times))
    assert [pulse.beat() for _ in range(5)] == [True, False, False, True, False]
    job = new_job()
    log.start_log(job, SPEC, client=client)
    assert announce(pulse.who, client) == 1
    assert events(client, job)[1:] == [ControlPlaneResumed(who=pulse.who)]
