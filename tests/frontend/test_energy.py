"""Joules per sample and cost of workers: on a job's page, in comparisons, and on machines."""

from typing import Any

import pytest
from django.test import Client

from controlplane.fleet.models import Agent
from controlplane.jobs.models import Job
from frontend.queries.energy import energy, total
from tests.frontend import factories
from tests.frontend.test_pages import text_of
from tests.telemetry.reports import change_reports

pytestmark = pytest.mark.django_db


def bare_job(**more: Any) -> Job:
    """Workers that measure no energy."""
    job = factories.demo_job()
    change_reports(lambda _: {"others": {}})
    return specified(job, **more)


def specified(job: Job, **more: Any) -> Job:
    Job.objects.filter(pk=job.pk).update(spec=factories.spec(**more))
    return Job.objects.get(pk=job.pk)


def test_without_counters_the_configured_power_is_used() -> None:
    job = bare_job(energy={"idle_watts": 100.0, "busy_watts": 100.0})
    used = energy(job)
    assert [each.rank for each in used] == [0, 1, 2, 3]
    assert all(each.watts == pytest.approx(100.0) for each in used)
    assert {each.source for each in used} == {"configured power"}
    everything = total(used)
    assert everything is not None
    assert everything.joules == pytest.approx(100.0 * everything.seconds)


def test_labels_of_a_machine_state_the_power_of_its_workers() -> None:
    job = bare_job()
    Agent.objects.filter(name="machine-2").update(labels={"idle-watts": "500", "busy-watts": "500"})
    assert energy(job)[2].watts == pytest.approx(500.0)
    assert [used.watts for used in energy(job, (2,))] == [pytest.approx(500.0)]


def test_measured_energy_is_shown_as_such() -> None:
    job = factories.demo_job()
    change_reports(lambda row: {"others": {**row.others, "joules": 2.0 * row.samples}})
    job.refresh_from_db()
    used = energy(job)
    assert {each.source for each in used} == {"measured"}
    assert all(each.joules_per_sample == pytest.approx(2.0) for each in used)


def test_hours_and_energy_cost(settings: Any) -> None:
    settings.WORKER_HOUR = None
    job = bare_job()
    assert energy(job)[0].cost == ""
    job = specified(job, energy={"hour": 3.6, "kwh": 3.6, "idle_watts": 1000.0, "busy_watts": 1000.0})
    (first, *_) = energy(job)
    assert first.amount == pytest.approx(first.seconds * (1e-3 + 1e-3))
    settings.WORKER_HOUR = (3.6, "EUR")
    (first, *_) = energy(specified(job))
    assert first.amount == pytest.approx(first.seconds * 1e-3)
    assert first.cost.endswith(" EUR")


def test_the_tab_workers_shows_energy_beside_speed(viewer: Client) -> None:
    job = bare_job()
    page = text_of(viewer, f"/jobs/{job.pk}/?tab=workers")
    assert "Energy and cost" in page
    assert "configured power" in page
    assert "All workers" in page
    fresh = factories.make_job(name="fresh")
    assert "joules per sample and cost appear here" in text_of(viewer, f"/jobs/{fresh.pk}/?tab=workers")


def test_a_machine_shows_joules_per_sample_of_its_processes(viewer: Client) -> None:
    job = bare_job()
    machine = Agent.objects.get(name="machine-1")
    page = viewer.get(f"/workers/{machine.pk}/").content.decode()
    assert job.name in page
    assert 'data-label="Joules per sample"' in page
