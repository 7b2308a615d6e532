"""A running job asks for a slot for one more server, and is told of it or why there is none."""

from typing import Any

import pytest

from controlplane.core.commands import ReleaseSlots, RequestSlot
from controlplane.core.events import Event, SlotRefused, SlotsAssigned
from controlplane.fleet.models import Agent, Reservation
from controlplane.fleet.reservations import release_slot
from controlplane.jobs.models import Job
from controlplane.protocol.spec import parse_spec, spec_document
from controlplane.runtime import log, scaling
from tests.runtime.support import SPEC

pytestmark = pytest.mark.django_db


@pytest.fixture
def job() -> int:
    return Job.objects.create(name="digits", spec=spec_document(SPEC)).pk


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    events: list[Event] = []
    monkeypatch.setattr(log, "append_event", lambda job, event: events.append(event))
    return events


def offer(server_slots: int) -> Agent:
    return Agent.objects.create(
        name="m1", credential_digest="d", state=Agent.State.ONLINE, slots=[], server_slots=server_slots
    )


def test_what_is_requested_is_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    queued: list[tuple[str, Any]] = []
    monkeypatch.setattr(
        "controlplane.runtime.scaling.current_app.send_task", lambda name, args: queued.append((name, args))
    )
    asked = RequestSlot(cause="1-0", reason="too few are superior", role="server", index=3)
    scaling.request_slots(7, [ReleaseSlots(cause="1-0", reason="over"), asked])
    assert queued == [("controlplane.runtime.tasks.reserve_slot", (7, "server", 3))]


def test_a_free_slot_is_reserved_once_however_often_it_is_requested(job: int, told: list[Event]) -> None:
    agent = offer(1)
    scaling.reserve(job, "server", 3)
    scaling.reserve(job, "server", 3)
    assert told[0] == told[1]
    assert isinstance(told[0], SlotsAssigned)
    ((assignment),) = told[0].assignments
    assert (assignment.role, assignment.index, assignment.agent) == ("server", 3, agent.pk)
    assert Reservation.objects.count() == 1
    assert release_slot(job, "server", 3) == 1


def test_without_one_the_job_lists_the_available_ones(job: int, told: list[Event]) -> None:
    offer(1)
    scaling.reserve(job, "server", 0)
    scaling.reserve(job, "server", 1)
    reason = "online machines have 1 server slots, 0 of them free"
    assert told[1] == SlotRefused(role="server", index=1, reason=reason)


def test_a_script_is_told_of_machines_that_run_scripts(told: list[Event]) -> None:
    document = {"name": "mine", "launch": "attached", "command": ["python", "train.py"], "workers": 2}
    job = Job.objects.create(name="mine", spec=spec_document(parse_spec(document)), launch="attached").pk
    slots = [{"emulate": None}] * 2
    Agent.objects.create(name="m1", credential_digest="d", state=Agent.State.ONLINE, slots=slots)
    scaling.reserve(job, "worker", 0)
    assert told == [
        SlotRefused(
            role="worker", index=0, reason="online machines that run scripts have 0 worker slots, 0 of them free"
        )
    ]
    Agent.objects.update(runs_scripts=True)
    scaling.reserve(job, "worker", 1)
    assert isinstance(told[1], SlotsAssigned)


def test_a_job_that_is_over_by_then_keeps_no_slot(job: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(job: int, event: Event) -> None:
        raise log.LogClosed(f"job {job}: is over")

    monkeypatch.setattr(log, "append_event", closed)
    offer(1)
    scaling.reserve(job, "server", 0)
    assert Reservation.objects.count() == 0
