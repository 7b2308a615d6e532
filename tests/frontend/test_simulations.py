"""Pages of simulations: what can be simulated, how far each is, and what came of it."""

import json
import re

import plotly.io
import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from django.utils.html import escape

from controlplane.core.states import JobState
from controlplane.jobs.models import Job
from controlplane.simulator.running import simulate
from controlplane.simulator.scenarios import find
from controlplane.simulator.variations import Variation
from controlplane.telemetry.models import Simulation
from controlplane.telemetry.simulations import simulation_run, simulation_submit
from frontend.build import build_simulation, simulation_etag
from frontend.figures.points import plain
from frontend.queries.copying import copy_of
from frontend.queries.simulations import grouped, offered
from tests.frontend import factories
from tests.frontend.test_pages import text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def row() -> Simulation:
    """Two policies of the demo, of which none has run."""
    user = User.objects.create(username="ann")
    return simulation_submit(scenario="demo", policies=["bsp", "lb-bsp-linear"], seed=3, user=user)


def test_only_operators_are_offered_to_simulate(viewer: Client, operator: Client) -> None:
    assert "Simulate a scenario" not in text_of(viewer, "/simulations/")
    page = text_of(operator, "/simulations/")
    assert "Simulate a scenario" in page
    assert "No simulations yet." in page


def test_a_simulation_reports_how_far_it_is_and_can_be_cancelled(
    viewer: Client, operator: Client, row: Simulation
) -> None:
    path = f"/simulations/{row.pk}/"
    assert "0 of 2 policies completed; waiting for a free Celery worker" in text_of(viewer, path)
    assert "Cancel" not in text_of(viewer, path)
    assert f"/api/v1/simulations/{row.pk}/actions/cancel" in operator.get(path).content.decode()
    assert "queued" in text_of(viewer, "/simulations/")


def test_outcomes_of_policies_are_compared_and_change_the_figure(viewer: Client, row: Simulation) -> None:
    before = simulation_etag("simulated-iterations", row, {})
    assert json.loads(build_simulation("simulated-iterations", row, {}))["layout"]["meta"]["empty"].endswith(".")
    simulation_run(row.pk)
    row.refresh_from_db()
    assert simulation_etag("simulated-iterations", row, {}) != before
    page = text_of(viewer, f"/simulations/{row.pk}/")
    assert "Policy Iteration Relative to baseline Waiting" in page
    assert "policies are done" not in page
    reply = viewer.get(f"/api/v1/simulations/{row.pk}/figures/simulated-iterations")
    figure = plotly.io.from_json(reply.content.decode())
    assert list(figure.data[0].y) == ["bsp", "lb-bsp-linear"]
    parts = [plain(bar["x"]) for bar in reply.json()["data"]]
    lengths = [sum(part[at] for part in parts) / 1000 for at in range(2)]
    assert lengths == pytest.approx([outcome["iteration_s"] for outcome in row.outcomes], rel=0.02)
    assert viewer.get(f"/api/v1/simulations/{row.pk}/figures/nothing").status_code == 404


def test_each_policy_leads_to_its_run_and_all_can_be_compared(viewer: Client, row: Simulation) -> None:
    path = f"/simulations/{row.pk}/"
    assert "/compare/?" not in viewer.get(path).content.decode()
    simulation_run(row.pk)
    runs = list(row.runs.order_by("id"))
    page = viewer.get(path).content.decode()
    assert [f'<a class="row-link" href="/jobs/{run.pk}/">{run.policy}</a>' in page for run in runs] == [True, True]
    comparison = f"/compare/?jobs={runs[0].pk},{runs[1].pk}"
    assert f'href="{comparison}">Compare all</a>' in page
    assert f"#{runs[1].pk} demo lb-bsp-linear" in text_of(viewer, comparison)
    assert f'<a href="{path}">#{row.pk}</a>' in viewer.get(f"/jobs/{runs[0].pk}/").content.decode()


def test_a_run_is_offered_to_be_saved_as_a_job_once_it_is_there(
    viewer: Client, operator: Client, row: Simulation
) -> None:
    path = f"/simulations/{row.pk}/"
    simulation_run(row.pk)
    run = row.runs.get(policy="lb-bsp-linear")
    link = f"/jobs/new/?copy={run.pk}"
    assert [link in each.get(path).content.decode() for each in (viewer, operator)] == [False, True]
    assert "Save as job" in text_of(operator, f"/jobs/{run.pk}/")
    copy = operator.get(link).context["copied"]
    assert (copy.spec["name"], copy.spec["seed"], copy.spec["workers"]) == ("demo lb-bsp-linear", 3, 4)
    assert copy.spec["synchronization"] == run.spec["synchronization"]
    assert [sentence.partition(" Select")[0] for sentence in copy.left] == ["4 workers and 2 servers were simulated."]


def test_what_holds_of_simulated_machines_only_is_left_to_who_submits(row: Simulation) -> None:
    spec = {
        "workload": {"name": "resnet-32"},
        "workers": 2,
        "labels": {"class": "gpu"},
        "limits": {"minimum": 2, "maximum": 64},
        "elastic": {"minimum_workers": 1, "restarts": 0},
    }
    run = Job(name="levels bsp", simulation=row, policy="bsp", spec=spec)
    copy = copy_of(run)
    assert copy.spec == {
        "name": "levels bsp",
        "workload": {},
        "workers": 2,
        "limits": {"minimum": 2},
        "elastic": {"restarts": 0},
    }
    assert copy.left[1].startswith("Only the timing of resnet-32 was simulated")


def test_other_machines_are_offered_and_reported(operator: Client) -> None:
    page = operator.get("/simulations/").content.decode()
    assert 'data-scenario="demo" data-workers="4" data-batch="256" data-limited="no"' in page
    user, variation = User.objects.create(username="ann"), Variation(workers=3)
    row = simulation_submit(scenario="demo", policies=["bsp"], seed=3, user=user, variation=variation)
    assert "demo #1, changed: 3 workers".replace("#1", f"#{row.pk}") in text_of(operator, "/simulations/")
    simulation_run(row.pk)
    assert "Changed cluster: 3 workers." in text_of(operator, f"/simulations/{row.pk}/")
    assert operator.get(f"/jobs/new/?copy={row.runs.get().pk}").context["copied"].spec["workers"] == 3


def recorded(iterations: int = 20) -> Job:
    """A job that is over, with as many reports."""
    job = factories.make_job(state=JobState.SUCCEEDED)
    factories.make_processes(job, factories.make_agents(), shares=factories.EVEN)
    factories.make_reports(job, [factories.Pace(shares=factories.EVEN)] * iterations)
    factories.make_entry(job, "1-0", kind="job-submitted")
    return job


def test_a_recorded_job_is_offered_with_its_own_policies_first(operator: Client) -> None:
    job = recorded()
    part = operator.get("/simulations/job/", {"job": job.pk}).content.decode()
    assert f'data-scenario="job-{job.pk}" data-workers="4" data-batch="256" data-limited="yes"' in part
    assert "The policies that it had (lb-bsp-cpu, bsp, round-robin, shared) are called recorded." in part
    assert part.index('value="recorded"') < part.index('value="bsp"')
    assert '<span>recorded <span class="tag">baseline</span></span>' in part
    assert f'<option value="{job.pk}">digits</option>' in operator.get("/simulations/").content.decode()


def test_the_page_of_a_job_that_is_over_leads_to_the_form_filled_in(viewer: Client, operator: Client) -> None:
    job = recorded()
    link = f"/simulations/?job={job.pk}"
    assert [f'href="{link}"' in each.get(f"/jobs/{job.pk}/").content.decode() for each in (viewer, operator)] == [
        False,
        True,
    ]
    page = operator.get(link).content.decode()
    assert '<option value="job" selected>Machines of a recorded job</option>' in page
    assert f'value="{job.pk}" aria-describedby="job-error"' in page
    assert '<div class="field" id="job-field">' in page, "it is to be seen"
    assert page.count(f'data-scenario="job-{job.pk}"') == 1
    running = factories.make_job()
    assert "Simulate on these machines" not in text_of(operator, f"/jobs/{running.pk}/")


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        ("99999", "expected a job that is over and recorded (job 99999: not in this database"),
        ("seven", "job: found 'seven', expected the ID of a recorded job"),
        ("", "job: found '', expected the ID of a recorded job"),
    ],
)
def test_a_job_that_cannot_be_simulated_is_refused_at_its_field(operator: Client, number: str, sentence: str) -> None:
    reply = operator.get("/simulations/job/", {"job": number})
    assert (reply.status_code, sentence in reply.content.decode()) == (400, True)
    page = operator.get("/simulations/", {"job": number})
    assert page.status_code == 200
    [on_field] = re.findall(r'id="job-error" role="alert">(.*?)</p>', page.content.decode())
    assert (escape(sentence) in on_field) == bool(number)


def test_a_recorded_job_has_one_name_however_its_number_is_written(operator: Client) -> None:
    job, user = recorded(), User.objects.create(username="ann")
    row = simulation_submit(scenario=f"job-0{job.pk}", policies=[], seed=0, user=user)
    assert row.scenario == f"job-{job.pk}"
    assert f'data-scenario="{row.scenario}"' in operator.get("/simulations/", {"job": f"0{job.pk}"}).content.decode()


def test_a_job_with_few_reports_cannot_be_simulated(operator: Client) -> None:
    job = recorded(iterations=11)
    said = operator.get("/simulations/job/", {"job": job.pk}).content.decode()
    assert f"(of job {job.pk}, w0 reported 11 iterations, and 12 of each worker are needed)" in said


def played(**more: object) -> Simulation:
    """A simulation on a recorded job's machines that is over: its own policies came out 4% too fast."""
    job = recorded()
    fit = {"compared": 18, "what": "iterations", "recorded_s": 0.25, "predicted_s": 0.24}
    fit |= {"error_median": 0.05, "error_p95": 0.11}
    outcome = simulate(find("demo"), "bsp").document() | {"policy": "recorded", "fit": fit}
    values = {"scenario": f"job-{job.pk}", "policies": ["recorded"], "state": "succeeded", "done": 1}
    return Simulation.objects.create(**values | {"finished_at": timezone.now(), "outcomes": [outcome]} | more)


def test_the_prediction_error_is_on_the_page_with_a_link_to_the_job(viewer: Client) -> None:
    row = played()
    path = f"/simulations/{row.pk}/"
    page = text_of(viewer, path)
    assert (
        "Prediction error: recorded: the model, learned from this very run, gives its 18 iterations a mean of 240 ms,"
        " recorded were 250 ms (4.0% off); error of single ones: median 5.0%, 95th percentile 11.0%." in page
    )
    job = Job.objects.get(simulation=None)
    assert f'machines as in <a href="/jobs/{job.pk}/">job #{job.pk}</a>' in viewer.get(path).content.decode()
    assert f"Job {job.pk} (digits) played again" in page


def test_where_nothing_can_be_compared_with_the_record_the_page_reports_why(viewer: Client) -> None:
    row = played(outcomes=[simulate(find("demo"), "bsp").document()])
    path = f"/simulations/{row.pk}/"
    assert "Prediction error: not available: also select the policy recorded" in text_of(viewer, path)
    Simulation.objects.filter(pk=row.pk).update(variation={"workers": 5})
    assert "Prediction error: not available: there are no recorded measurements" in text_of(viewer, path)
    Simulation.objects.filter(pk=row.pk).update(variation={}, finished_at=None, state="running")
    assert "Prediction error: available once the run of the policy recorded" in text_of(viewer, path)
    stuck = simulate(find("demo"), "bsp").document() | {"policy": "recorded", "state": "running"}
    Simulation.objects.filter(pk=row.pk).update(outcomes=[stuck])
    assert "Prediction error: not available: the simulated run of the policy recorded did not complete" in text_of(
        viewer, path
    )
    Simulation.objects.filter(pk=row.pk).update(scenario="demo")
    assert "Prediction error" not in text_of(viewer, path)


def test_rows_of_an_earlier_release_lead_nowhere(viewer: Client, row: Simulation) -> None:
    simulation_run(row.pk)
    row.runs.all().delete()
    page = viewer.get(f"/simulations/{row.pk}/").content.decode()
    assert '<th scope="row" data-label="Policy">bsp</th>' in page
    assert "/compare/?" not in page


def test_a_live_part_is_put_in_place(viewer: Client, row: Simulation) -> None:
    live = viewer.get(f"/simulations/{row.pk}/", headers={"HX-Request": "true"}).content.decode()
    assert live.strip().startswith('<section id="simulation"')
    assert 'hx-swap-oob="true"' in live


def test_a_scenario_that_is_gone_is_reported(viewer: Client) -> None:
    row = Simulation.objects.create(scenario="of-old", policies=["bsp"], state="failed", finished_at=timezone.now())
    assert "this scenario is not part of this release" in text_of(viewer, f"/simulations/{row.pk}/")
    assert viewer.get(f"/api/v1/simulations/{row.pk}").json()["paper"] == []
    assert viewer.get("/simulations/9999/").status_code == 404


def test_scenarios_are_grouped_with_the_demo_first() -> None:
    found = dict(grouped())
    assert next(iter(found)) == "Demo"
    assert sorted(each.name for members in found.values() for each in members) == [each.name for each in offered()]
    assert {each.name for each in found["PSLD: VGG16"]} >= {"psld-vgg16-8"}
    assert max(map(len, found.values())) <= 20
