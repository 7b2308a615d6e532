"""Tests of machines: who may be tested, each step of a test, and every way in which it ends."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controlplane.fleet.machine_classes import class_of, compared, emulation_note, peers_results
from controlplane.fleet.machine_tests import (
    ANSWER_LIMIT,
    KEPT,
    LIMIT,
    PreflightRefused,
    far_end_answered,
    preflight_began,
    preflight_ended,
    preflight_request,
    preflights_lost,
    preflights_of,
    preflights_overdue,
    preflights_to_begin,
    preflights_to_listen_for,
)
from controlplane.fleet.models import Agent, MachineTest, Reservation
from controlplane.people.models import Team
from controlplane.protocol.machine_tests import Listening, MachineTested, MeasuredLink
from controlplane.protocol.messages import Environment
from tests.support.rows import emulated, online_agent

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)

pytestmark = pytest.mark.django_db


def machine(name: str = "m1", **offer: Any) -> Agent:
    return online_agent(name, **{"tests": True, **offer})


def asked(agent: Agent, **more: Any) -> MachineTest:
    return preflight_request(agent=agent, actor="ann", **{"now": NOON, **more})


def result(test: MachineTest, **numbers: Any) -> MachineTested:
    return MachineTested(number=9, test=test.pk, **numbers)


def succeeded(agent: Agent, **numbers: Any) -> MachineTest:
    """A test that has succeeded, with all far ends."""
    row = asked(agent)
    for far_end in row.far_ends:
        far_end_answered(far_end["agent"], Listening(number=2, test=row.pk, port=4711))
    preflight_began(row.pk)
    assert preflight_ended(agent.pk, result(row, **numbers), now=NOON)
    row.refresh_from_db()
    return row


def test_a_test_begins_once_its_far_ends_listen_or_have_refused() -> None:
    one, two, three = machine("m1"), machine("m2"), machine("m3")
    row = asked(one)
    assert [each["name"] for each in row.far_ends] == ["m2", "m3"]
    assert list(preflights_to_begin(one.pk, now=NOON)) == []
    assert preflights_to_listen_for(one.pk) == []
    assert preflights_to_listen_for(two.pk) == [(row, 0)]
    assert far_end_answered(two.pk, Listening(number=2, test=row.pk, port=4711)) is not None
    assert far_end_answered(two.pk, Listening(number=2, test=row.pk, port=1)) is None, "said again"
    assert preflights_to_listen_for(two.pk) == []
    assert far_end_answered(three.pk, Listening(number=2, test=row.pk, failure="no port is free")) is not None
    assert list(preflights_to_begin(one.pk, now=NOON)) == [row]
    assert preflight_began(row.pk)
    assert not preflight_began(row.pk)
    link = MeasuredLink(machine="m2", round_trip_s=0.001, bytes_per_s=1e8)
    assert preflight_ended(one.pk, result(row, cpu_flops=2e11, links=[link], seconds=4.0), now=NOON)
    row.refresh_from_db()
    assert (row.state, row.failure, row.note, row.ended_at) == ("succeeded", "", "", NOON)
    assert row.result == {
        "cpu_flops": 2e11,
        "seconds": 4.0,
        "links": [
            {"machine": "m2", "round_trip_s": 0.001, "bytes_per_s": 1e8, "failure": ""},
            {"machine": "m3", "failure": "no port is free"},
        ],
    }


def test_a_far_end_that_does_not_answer_holds_nothing_up() -> None:
    one, _ = machine("m1"), machine("m2")
    row = asked(one)
    assert preflights_overdue(NOON + timedelta(seconds=1)) == ([], [])
    assert preflights_overdue(NOON + ANSWER_LIMIT) == ([], [row])
    assert list(preflights_to_begin(one.pk, now=NOON + ANSWER_LIMIT)) == [row]
    preflight_began(row.pk)
    preflight_ended(one.pk, result(row, cpu_flops=1.0))
    row.refresh_from_db()
    assert row.result["links"] == [{"machine": "m2", "failure": "it did not answer in 5 s"}]


def test_a_test_without_far_ends_begins_at_once() -> None:
    row = asked(machine("m1"))
    assert list(preflights_to_begin(row.agent_id, now=NOON)) == [row]


def test_a_test_that_no_one_answers_ends_with_the_reason() -> None:
    row = asked(machine("m1"))
    preflight_began(row.pk)
    assert preflights_overdue(NOON + LIMIT - timedelta(seconds=1)) == ([], [])
    assert preflights_overdue(NOON + LIMIT)[0] == [row]
    row.refresh_from_db()
    assert (row.state, row.failure) == (
        "failed",
        "nothing came of it within 90 s: its agent is out of reach; test the machine again",
    )
    assert not preflight_ended(row.agent_id, result(row, cpu_flops=1.0)), "too late"
    asked(Agent.objects.get())


def test_a_test_ends_if_its_agent_returns_without_it() -> None:
    row = asked(machine("m1"))
    preflight_began(row.pk)
    assert preflights_lost(row.agent_id, [row.pk]) == 0, "it still runs"
    assert preflights_lost(row.agent_id, []) == 1
    row.refresh_from_db()
    assert row.failure.startswith("its agent came back without it: it was restarted, or never got the order")
    assert preflights_lost(row.agent_id, []) == 0


def test_a_failure_that_the_agent_reports_is_kept() -> None:
    row = asked(machine("m1"))
    assert preflight_ended(row.agent_id, result(row, failure="it was ended after 60 s"))
    row.refresh_from_db()
    assert (row.state, row.failure, row.result) == ("failed", "it was ended after 60 s", {})


def test_the_result_of_another_machines_test_is_not_taken() -> None:
    row, other = asked(machine("m1")), machine("m2")
    assert not preflight_ended(other.pk, result(row, cpu_flops=1.0))
    assert far_end_answered(other.pk, Listening(number=2, test=row.pk, port=1)) is None


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"state": "offline"}, "agent 'm1' is offline: test it once it is back"),
        ({"can_test": False}, "agent 'm1' runs 0.1.0, which has no tests of machines: update it there"),
    ],
)
def test_a_machine_that_cannot_be_tested_is_refused_with_the_cure(changed: dict[str, Any], says: str) -> None:
    one = machine("m1")
    Agent.objects.update(**changed)
    one.refresh_from_db()
    with pytest.raises(PreflightRefused) as refused:
        asked(one)
    assert str(refused.value).startswith(says)


def test_one_test_at_a_time_also_of_far_ends() -> None:
    one, two = machine("m1"), machine("m2")
    asked(one)
    with pytest.raises(PreflightRefused, match="agent 'm1' cannot be tested: it is being tested; wait for the end"):
        asked(one)
    with pytest.raises(PreflightRefused, match="agent 'm2' cannot be tested: agent 'm1', with a link to it, is being"):
        asked(two)


def test_a_machine_with_processes_is_tested_by_force_only_and_its_result_is_doubtful() -> None:
    one = machine("m1")
    for slot in range(2):
        Reservation.objects.create(agent=one, role="worker", slot=slot, job_id=7, index=slot)
    says = r"agent 'm1' has 2 slots in use \(job #7\), which a test would slow down: drain it first, or force the test"
    with pytest.raises(PreflightRefused, match=says):
        asked(one)
    row = asked(one, force=True)
    assert row.forced
    preflight_ended(one.pk, result(row, cpu_flops=1.0))
    row.refresh_from_db()
    assert row.note == "processes of jobs ran on the machine meanwhile"


def test_a_job_that_begins_during_a_test_makes_its_result_doubtful() -> None:
    one = machine("m1")
    row = asked(one)
    Reservation.objects.create(agent=one, role="worker", slot=0, job_id=7, index=0)
    preflight_ended(one.pk, result(row, cpu_flops=1.0))
    row.refresh_from_db()
    assert row.note.startswith("a job was given slots of the machine meanwhile")


def test_far_ends_are_those_that_run_servers_first_and_never_those_of_another_team() -> None:
    one, idle, busy = machine("m1"), machine("m2"), machine("m3")
    machine("m4", server_slots=0)
    online_agent("m5", tests=False)
    Agent.objects.filter(pk=machine("m6").pk).update(team=Team.objects.create(name="others"))
    Reservation.objects.create(agent=busy, role="server", slot=0, job_id=7, index=0)
    assert [each["agent"] for each in asked(one).far_ends] == [busy.pk, idle.pk]


def test_the_latest_tests_are_kept() -> None:
    one = machine("m1")
    rows = [succeeded(one, cpu_flops=1.0) for _ in range(KEPT + 2)]
    assert list(preflights_of(one)) == rows[:1:-1]


def test_a_machine_is_compared_with_the_latest_results_of_its_class() -> None:
    cpu = Environment(cpu="Xeon", device="auto (H100)")
    one, *others = (machine(f"m{n}", environment=cpu) for n in range(4))
    Agent.objects.filter(pk__in=[one.pk, *(each.pk for each in others)]).update(server_slots=0)
    machine("far")
    slower_link = MeasuredLink(machine="far", round_trip_s=0.004, bytes_per_s=5e7)
    succeeded(others[0], cpu_flops=9e11)
    for other in others:
        link = MeasuredLink(machine="far", round_trip_s=0.002, bytes_per_s=1e8)
        succeeded(other, cpu_flops=1e11, memory_bytes_per_s=1e10, links=[link])
    succeeded(machine("other class", environment=Environment(cpu="Atom")), cpu_flops=9e11)
    row = succeeded(one, cpu_flops=8e10, memory_bytes_per_s=1.02e10, gpu_flops=5e13, links=[slower_link])
    found = {each.title: each for each in compared(row.result, peers_results(one, Agent.objects.all()))}
    assert class_of(one) == "Xeon, 8 CPUs, H100"
    assert (found["CPU, float32"].value, found["CPU, float32"].median, found["CPU, float32"].unit) == (
        80.0,
        100.0,
        "GFLOP/s",
    )
    assert {title: (each.sentence, each.slow) for title, each in found.items()} == {
        "CPU, float32": ("20 % below the median of 3 other machines of its class", True),
        "Memory": ("as the median of 3 other machines of its class", False),
        "GPU, float32": ("no other machine of its class was measured", False),
        "Link to far": ("50 % below the median of 3 other machines of its class", True),
        "Round trip to far": ("100 % longer than the median of 3 other machines of its class", True),
    }


def test_a_link_to_a_machine_that_does_not_take_part_is_left_out() -> None:
    one = machine("m1")
    link = MeasuredLink(machine="elsewhere", round_trip_s=0.001, bytes_per_s=1e8)
    assert "links" not in succeeded(one, cpu_flops=1.0, links=[link]).result


def test_a_label_names_the_class_before_the_hardware() -> None:
    one = machine("m1", environment=Environment(cpu="Xeon"))
    Agent.objects.filter(pk=one.pk).update(added_labels={"class": "fast"})
    one.refresh_from_db()
    assert class_of(one) == "class=fast"
    assert class_of(machine("m2", cpu_count=1)) == "unknown CPU, 1 CPU"


def test_emulated_machines_report_that_they_are_measured_at_their_real_speed() -> None:
    assert emulation_note(machine("m1")) == ""
    assert "at its real speed" in emulation_note(machine("m2", slots=emulated(250.0)))
