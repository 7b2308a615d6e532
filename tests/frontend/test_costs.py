"""The greatest costs now: in workers that are paid for and do nothing, the greatest first."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client, override_settings
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.hangs import HANG
from controlplane.fleet.models import Agent
from controlplane.jobs.models import Job
from frontend.figures.costs import NOTICED, SHOWN, Absent, JobPace, costs
from frontend.queries.costs import greatest
from frontend.queries.fleet import machines
from tests.frontend import factories
from tests.frontend.test_pages import text_of

shares = st.floats(0.0, 0.5)
paces = st.builds(
    JobPace,
    job=st.integers(1, 99),
    name=st.just("digits"),
    workers=st.integers(1, 64),
    waiting=shares,
    coordination=shares,
    slowest=st.integers(0, 63),
    hangs=st.booleans(),
)


@given(st.lists(paces, max_size=6, unique_by=lambda pace: pace.job), st.integers(0, 3))
def test_the_greatest_come_first_and_noise_is_left_out(found: list[JobPace], gone: int) -> None:
    absent = [Absent(machine_id=place, name=f"m{place}", slots=place + 1) for place in range(gone)]
    lost = [cost.workers for cost in costs(found, absent)]
    assert lost == sorted(lost, reverse=True)
    assert len(lost) <= SHOWN
    assert all(cost.share >= NOTICED for cost in costs(found, absent))
    assert all(0 < cost.workers <= cost.of for cost in costs(found, absent))


@pytest.fixture
def uneven(db: None) -> Job:
    job = factories.make_job(spec=factories.spec(policy="uniform"))
    factories.make_processes(job, factories.make_agents(), shares=factories.EVEN)
    factories.make_reports(job, [factories.Pace(shares=factories.EVEN)] * 20)
    return job


def test_the_slowest_worker_is_named_with_its_machine(uneven: Job) -> None:
    [line] = greatest(machines(timezone.now()), timezone.now())
    assert (line.cost.kind, line.cost.rank, line.cost.machine) == ("waiting", 3, "machine-3")
    assert line.cost.workers == pytest.approx(1.94, abs=0.01)


def test_the_overview_begins_with_them_and_has_their_price(uneven: Job, viewer: Client) -> None:
    with override_settings(WORKER_HOUR=(0.40, "EUR")):
        page = text_of(viewer, "/")
    assert page.index("Highest costs now") < page.index("Machines online")
    assert "1.9 of 4 workers 0.78 EUR per hour w3 holds the others back: 48% of the workers' time is waiting" in page


def test_an_iteration_that_does_not_end_costs_all_workers(uneven: Job) -> None:
    factories.make_flag(uneven, kind=HANG, subject="job", rank=0)
    [line] = greatest([], timezone.now())
    assert (line.cost.kind, line.cost.workers) == ("hang", 4.0)


def test_an_offline_machine_costs_only_while_jobs_wait(viewer: Client) -> None:
    factories.make_agents(1, slots=4)
    Agent.objects.update(state=Agent.State.OFFLINE)
    assert greatest(machines(timezone.now()), timezone.now()) == []
    user = User.objects.create_user("ada")
    Job.objects.create(name="waits", spec=factories.spec(), submitted_by=user)
    [line] = greatest(machines(timezone.now()), timezone.now())
    assert (line.cost.kind, line.cost.machine, line.cost.workers) == ("offline", "machine-0", 4.0)


def test_balanced_jobs_and_an_idle_cluster_report_it(viewer: Client) -> None:
    assert "No jobs are running. While jobs train" in text_of(viewer, "/")
    factories.demo_job()
    page = text_of(viewer, "/")
    assert "No running job lost more than 5% of its worker time to waiting or to coordination in " in page


def test_the_tile_covers_the_iterations_of_the_costs_and_reports_it(viewer: Client) -> None:
    """A job that waited much before its shares were balanced: neither counts that any more."""
    job = factories.make_job()
    factories.make_processes(job, factories.make_agents())
    even, balanced = (factories.Pace(shares=shares) for shares in (factories.EVEN, factories.BALANCED))
    factories.make_reports(job, [even] * 20 + [balanced] * 10)
    job.refresh_from_db()
    assert job.waiting_share > 0.2
    page = text_of(viewer, "/")
    assert "to coordination in its last 10 iterations." in page
    [tile] = re.findall(r"Lost time , last 10 iterations ([\d.]+)%", page)
    assert float(tile) < 100 * NOTICED


def test_the_week_and_the_month_have_their_own_totals(viewer: Client, uneven: Job) -> None:
    assert 'aria-current="true">7 days' in viewer.get("/waiting/").content.decode()
    assert 'aria-current="true">30 days' in viewer.get("/waiting/?days=30").content.decode()
    assert viewer.get("/waiting/?days=8").status_code == 400
