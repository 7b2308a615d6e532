"""Who gets which slot."""

import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection
from pytest_django import DjangoAssertNumQueries

from controlplane.core.events import Assignment
from controlplane.fleet import reservations
from controlplane.fleet.models import Reservation
from controlplane.fleet.reservations import release_slots, reserve_slots
from controlplane.fleet.selectors import Capacity, capacity, slots_now
from controlplane.fleet.services import agent_connected, agent_disconnected
from controlplane.protocol.orders import Role
from controlplane.protocol.spec import Emulation
from controlplane.scheduling.queueing import Outcome, SlotRequest, Take, plan
from tests.support.rows import emulated, hello, online_agent, reserve


def assigned(role: Role, index: int, agent: int, slot: int, speed: float | None = None) -> Assignment:
    emulate = Emulation(samples_per_second=speed) if speed else None
    host = "10.0.0.7" if role == "worker" else ""
    return Assignment(role=role, index=index, agent=agent, slot=slot, emulate=emulate, host=host)


@pytest.mark.django_db
def test_a_script_goes_to_machines_whose_agents_start_scripts() -> None:
    online_agent("m1", slots=4)
    able = online_agent("m2", slots=4, scripts=True)
    assert [(offer.name, offer.scripts) for offer in slots_now().offers] == [("m1", False), ("m2", True)]
    found = reservations.replace_slot(7, {}, "worker", 0, script=True)
    assert found == assigned("worker", 0, able.pk, 0)
    assert (capacity({}).workers, capacity({}, script=True).workers) == (8, 4)


@pytest.mark.django_db
def test_slots_are_given_by_agent_and_number() -> None:
    first, second = online_agent("m1", slots=emulated(1000.0, 500.0)), online_agent("m2", slots=2, server_slots=2)
    assert reserve(7, {}, workers=3, servers=2) == [
        assigned("worker", 0, first.pk, 0, 1000.0),
        assigned("worker", 1, first.pk, 1, 500.0),
        assigned("worker", 2, second.pk, 0),
        assigned("server", 0, first.pk, 0),
        assigned("server", 1, second.pk, 0),
    ]


@pytest.mark.django_db
def test_all_or_nothing() -> None:
    online_agent("m1", slots=4, server_slots=1)
    assert (reserve(7, {}, workers=2, servers=2), Reservation.objects.count()) == (None, 0)


@pytest.mark.django_db
def test_a_taken_slot_is_not_given_again_until_it_is_released() -> None:
    agent = online_agent("m1", slots=3, server_slots=3)
    reserve(7, {}, workers=2, servers=1)
    assert reserve(8, {}, workers=2, servers=1) is None
    assert (release_slots(7), release_slots(7)) == (3, 0)
    assert reserve(8, {}, workers=2, servers=1) == [
        assigned("worker", 0, agent.pk, 0),
        assigned("worker", 1, agent.pk, 1),
        assigned("server", 0, agent.pk, 0),
    ]


@pytest.mark.django_db
def test_a_scheduler_that_looked_before_another_reserved_gives_no_process_a_second_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both look, one waits for the other's lock on the agents, and then sees slots that are free."""
    online_agent("m1", slots=8, server_slots=8)
    first = reserve(7, {}, workers=2, servers=1)
    with monkeypatch.context() as looked_before:
        looked_before.setattr(reservations, "_held_by", lambda job_id: [])
        looked_before.setattr(reservations, "release_slots", lambda job_id: 0)
        assert reserve(7, {}, workers=2, servers=1) is None
    assert Reservation.objects.count() == 3
    assert reserve(7, {}, workers=2, servers=1) == first


@pytest.mark.django_db
def test_only_online_agents_with_every_label_count() -> None:
    online_agent("m1", labels={"gpu": "a100"})
    offline = online_agent("m2", labels={"gpu": "a100", "zone": "b"})
    agent_disconnected(offline.pk)
    fits = online_agent("m3", labels={"gpu": "a100", "zone": "b", "more": "x"})
    assert reserve(7, {"gpu": "a100", "zone": "b"}, workers=1, servers=1) == [
        assigned("worker", 0, fits.pk, 0),
        assigned("server", 0, fits.pk, 0),
    ]


@pytest.mark.django_db
def test_asking_twice_gives_the_same_slots() -> None:
    online_agent("m1", slots=emulated(1000.0, 250.0, 500.0), server_slots=2)
    first = reserve(7, {}, workers=2, servers=1)
    assert (reserve(7, {}, workers=2, servers=1), Reservation.objects.count()) == (first, 3)


@pytest.mark.django_db
def test_reservations_of_a_deleted_agent_are_made_again() -> None:
    gone, stays = online_agent("m1", slots=1, server_slots=0), online_agent("m2", slots=2, server_slots=1)
    reserve(7, {}, workers=2, servers=1)
    gone.delete()
    takes = [Take(machine=stays.pk, workers=2, servers=1)]
    assert reserve_slots(7, takes, enough=3) == [
        assigned("worker", 0, stays.pk, 0),
        assigned("worker", 1, stays.pk, 1),
        assigned("server", 0, stays.pk, 0),
    ]


@pytest.mark.django_db
def test_capacity_counts_what_is_offered_and_what_is_free() -> None:
    online_agent("m1", slots=3, server_slots=1, labels={"gpu": "a100"})
    online_agent("m2", slots=5, server_slots=5)
    reserve(7, {"gpu": "a100"}, workers=2, servers=1)
    assert capacity({"gpu": "a100"}) == Capacity(
        online=2, matching=1, workers=3, servers=1, free_workers=1, free_servers=0
    )


@pytest.mark.django_db(transaction=True)
def test_jobs_that_ask_at_once_never_share_a_slot() -> None:
    online_agent("m1", slots=5, server_slots=8)

    def ask(job: int) -> list[Assignment] | None:
        try:
            return reserve(job, {}, workers=2, servers=1)
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as threads:
        given = [found for found in threads.map(ask, range(1, 7)) if found]
    slots = [(found.role, found.slot) for assignments in given for found in assignments]
    assert (len(given), len(set(slots)), Reservation.objects.count()) == (2, 6, 6)


@pytest.mark.django_db
def test_slots_that_someone_else_took_since_are_not_had() -> None:
    agent = online_agent("m1", slots=2)
    seen = [Take(machine=agent.pk, workers=2, servers=1)]
    reserve(7, {}, workers=1, servers=1)
    assert (reserve_slots(8, seen, enough=3), Reservation.objects.filter(job_id=8).count()) == (None, 0)


@pytest.mark.django_db
def test_slots_held_beyond_those_of_a_machine_that_came_back_smaller_take_none_of_them() -> None:
    agent = online_agent("m1", slots=4, server_slots=2)
    reserve(7, {}, workers=4, servers=2)
    Reservation.objects.filter(role="worker", slot=0).delete()
    agent_connected(agent.pk, hello("m1", slots=2, server_slots=1))
    there = capacity({})
    assert (there.workers, there.free_workers, there.servers, there.free_servers) == (2, 1, 1, 0)


@pytest.mark.django_db
def test_as_many_queries_and_rows_are_read_for_many_slots_as_for_few(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    """What a machine emulates is read once for all of its slots, not once for each."""
    for machine in range(3):
        online_agent(f"m{machine}", slots=emulated(*[250.0] * 200), server_slots=2)
    reserve(7, {}, workers=500, servers=3)
    with django_assert_num_queries(2):
        slots_now()
    with django_assert_num_queries(4):  # of which two are those of a transaction
        again = reserve_slots(7, [], enough=503)
    assert again is not None
    assert len(again) == 503


@pytest.mark.django_db
def test_a_job_of_3000_workers_beside_20000_slots_costs_two_queries_and_little_memory(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    """What machines offer is counted in the database; neither slots nor reservations are read one by one."""
    for machine in range(20):
        online_agent(f"m{machine}", slots=1000, server_slots=0)
    held = reserve(7, {}, workers=18_000, servers=0)
    assert held is not None
    asked = SlotRequest(job=8, workers=3_000, least=3_000, servers=0, labels={}, since=0.0)
    tracemalloc.start()
    try:
        with django_assert_num_queries(2):
            there = slots_now()
        [verdict] = plan([asked], there.offers, now=0.0)
        assert there.held_by([7, 8]) == {7: 18_000}
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert verdict.outcome is Outcome.WAITS
    assert peak < 2**20, "bytes: a list of the slots alone would be larger"
