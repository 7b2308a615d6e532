"""A finished job shows the same after its machines were removed, however they were."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin import site
from django.test import Client, RequestFactory
from django.utils import timezone

from controlplane.api.machines import remove_machine
from controlplane.api.serializers.jobs import ProcessRow
from controlplane.core.states import JobState, ProcessState
from controlplane.fleet.models import Agent, Reservation
from controlplane.fleet.services import agents_remove_absent
from controlplane.jobs.machines import machine_of
from controlplane.jobs.models import Job, Process
from controlplane.jobs.selectors import job_processes
from frontend.figures.rows import View
from frontend.queries import costs, lanes
from frontend.queries.energy import energy
from frontend.queries.heat import heat, machine_classes
from frontend.queries.job import flags, machines_of, processes
from frontend.queries.topology import topology
from tests.frontend import factories
from tests.telemetry.reports import change_reports

pytestmark = pytest.mark.django_db


def over_rest() -> None:
    for agent in Agent.objects.all():
        remove_machine(agent=agent, actor="admin")


def by_the_time_limit() -> None:
    Agent.objects.update(remove_after=timedelta(hours=1), seen_at=timezone.now() - timedelta(hours=2))
    agents_remove_absent()


def in_the_admin() -> None:
    site.get_model_admin(Agent).delete_queryset(RequestFactory().post("/"), Agent.objects.all())


@pytest.fixture
def finished() -> Job:
    """A job that measured no energy, and whose machines, now offline, differ in what figures read."""
    job = factories.demo_job()
    change_reports(lambda _: {"others": {}})
    for rank, agent in enumerate(Agent.objects.order_by("name")):
        agent.labels = {"idle-watts": f"{100 + rank}", "busy-watts": f"{200 + rank}", "rack": f"r{rank % 2}"}
        agent.added_labels = {"hour-price": f"{1 + rank}"}
        agent.unverified_labels = {"class": "reported"} if rank == 1 else {}
        agent.cpu_count, agent.state = 4 + rank, Agent.State.OFFLINE
        agent.save()
    Process.objects.filter(job=job, index__gt=1).update(emulate=None)
    Process.objects.filter(job=job).update(state=ProcessState.FINISHED, ended_at=timezone.now())
    Job.objects.filter(pk=job.pk).update(state=JobState.SUCCEEDED, finished_at=timezone.now())
    Reservation.objects.all().delete()
    return Job.objects.get(pk=job.pk)


def shown(job: Job) -> dict[str, Any]:
    """All that is read of a job's machines, except links to their pages."""
    found, pace = heat(job, View(x="iteration", metric="work")), costs._pace(job)
    assert pace is not None
    return {
        "energy": energy(job),
        "lanes": lanes.ranks(job),
        "heat": (found.labels, found.classes, found.values.tolist()),
        "classes": machine_classes(job),
        "pace": replace(pace, machine_id=None),
        "processes": [replace(each, machine_id=None) for each in processes(job)],
        "topology": topology(job, View(x="iteration")),
        "rest": [ProcessRow(row).data | {"agent_id": None} for row in job_processes(job.pk)],
        "machines": [machine_of(row) for row in job_processes(job.pk)],
    }


@pytest.mark.parametrize("remove", [over_rest, by_the_time_limit, in_the_admin])
def test_figures_costs_and_classes_stay_when_the_machines_are_removed(
    finished: Job, remove: Callable[[], None], redis_url: str
) -> None:
    before = shown(finished)
    assert {used.machine: round(used.joules / used.amount) for used in before["energy"]}.keys() == {
        f"machine-{rank}" for rank in range(4)
    }
    assert len(set(before["classes"].values())) == 4
    remove()
    assert not Agent.objects.exists()
    assert shown(finished) == before


def test_a_flag_links_to_no_machine_that_was_removed(finished: Job) -> None:
    (flag,) = [each for each in flags(finished, timezone.now()) if each.title == "w3"]
    there = Process.objects.get(job=finished, role="worker", index=3)
    assert machines_of(finished, [flag]) == {flag.id: there.agent_id}
    earlier = Agent.objects.get(name="machine-0")
    Process.objects.create(
        job=finished,
        role="worker",
        index=3,
        instance="w3-first",
        agent=earlier,
        state=ProcessState.LOST,
        state_since=factories.START,
        started_at=factories.START - timedelta(seconds=1),
    )
    Agent.objects.filter(pk=there.agent_id).delete()
    assert machines_of(finished, [flag]) == {flag.id: 0}


def test_its_pages_name_a_machine_that_was_removed(finished: Job, viewer: Client, redis_url: str) -> None:
    over_rest()
    for tab in ("overview", "workers", "processes", "heatmap"):
        page = viewer.get(f"/jobs/{finished.pk}/?tab={tab}")
        assert page.status_code == 200
        assert "/workers/0/" not in page.content.decode()
    assert "machine-3" in viewer.get(f"/jobs/{finished.pk}/?tab=processes").content.decode()
