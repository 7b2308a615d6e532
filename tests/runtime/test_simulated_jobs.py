"""A recorded job as the machines of a simulation: over REST and on the command line, with the prediction error."""

import io
import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError
from msgspec.structs import replace
from rest_framework.test import APIClient

from controlplane.core.states import JobState
from controlplane.jobs.models import Job, Process
from controlplane.protocol.spec import parse_spec, spec_document
from controlplane.runtime.recorded_jobs import learned_run, simulated_run
from controlplane.simulator.cluster import Cluster
from controlplane.simulator.control import Recording
from controlplane.simulator.disturbances import Wavering
from controlplane.telemetry.job_outlines import job_outline
from controlplane.telemetry.models import RawEvent, Simulation
from controlplane.telemetry.simulations import simulations_run
from tests.runtime.test_replay_and_whatif import stored
from tests.simulator.worlds import LB_BSP, world
from tests.telemetry.reports import change_reports

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def job() -> Job:
    recording = Recording(keep=True)
    cluster = Cluster(world(wavering=Wavering(noise=0.1)), LB_BSP, seed=3, recording=recording)
    cluster.run()
    return stored(recording, cluster)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> APIClient:
    monkeypatch.setattr("controlplane.api.views.simulations.current_app.send_task", lambda name: None)
    client = APIClient()
    client.force_authenticate(User.objects.create_superuser("bob"))
    return client


def ask(client: APIClient, job: int, **document: Any) -> Any:
    return client.post("/api/v1/simulations", {"scenario": f"job-{job}", "seed": 5} | document, format="json")


def printed(*arguments: str) -> str:
    out = io.StringIO()
    call_command("simulate", *arguments, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def test_under_the_policies_that_it_had_the_prediction_error_is_reported(client: APIClient, job: Job) -> None:
    pk = ask(client, job.pk, policies=["recorded", "bsp"]).json()["id"]
    simulations_run(learn=learned_run)
    found = client.get(f"/api/v1/simulations/{pk}").json()
    assert (found["state"], found["scenario"]) == ("succeeded", f"job-{job.pk}")
    own, bsp = found["outcomes"]
    assert own["fit"]["error_median"] < 0.15
    assert own["fit"]["predicted_s"] == pytest.approx(own["fit"]["recorded_s"], rel=0.1)
    assert bsp["fit"] is None, "nobody recorded what it would have done under other policies"
    assert bsp["iteration_s"] > 1.5 * own["iteration_s"]


def test_the_same_policies_under_another_name_are_compared_too(job: Job) -> None:
    """What is called lb-bsp-ema is what this job had; lb-bsp-cpu with its default predictor is not."""
    document = json.loads(printed(f"job-{job.pk}", "--policies", "lb-bsp-ema,lb-bsp-cpu", "--json"))
    assert [outcome["fit"] is not None for outcome in document["outcomes"]] == [True, False]


def test_the_command_reports_how_far_it_is_off_and_plays_what_rest_does(client: APIClient, job: Job) -> None:
    arguments = (f"job-{job.pk}", "--policies", "recorded", "--seed", "5")
    assert "recorded: the model, learned from this very run, gives its" in printed(*arguments)
    pk = ask(client, job.pk, policies=["recorded"]).json()["id"]
    simulations_run(learn=learned_run)
    outcomes = json.loads(printed(*arguments, "--json"))["outcomes"]
    assert client.get(f"/api/v1/simulations/{pk}").json()["outcomes"] == outcomes


def test_on_other_machines_nothing_is_compared(client: APIClient, job: Job) -> None:
    pk = ask(client, job.pk, policies=["recorded"], workers=5, bandwidth=2).json()["id"]
    simulations_run(learn=learned_run)
    found = client.get(f"/api/v1/simulations/{pk}").json()
    assert (found["state"], found["outcomes"][0]["fit"]) == ("succeeded", None)
    assert "learned from this very run" not in printed(f"job-{job.pk}", "--policies", "recorded", "--workers", "5")


def test_what_its_runs_could_do_else_is_played_on_the_learned_machines(client: APIClient, job: Job) -> None:
    ask(client, job.pk, policies=["recorded"])
    simulations_run(learn=learned_run)
    run = simulated_run(Simulation.objects.get().runs.get().pk)
    assert run is not None
    assert run.scenario.groups != job_outline(job.pk).groups
    assert len(run.scenario.groups) == 4


def test_a_log_that_goes_while_it_waits_ends_it_with_the_reason(client: APIClient, job: Job) -> None:
    pk = ask(client, job.pk).json()["id"]
    RawEvent.objects.all().delete()
    simulations_run(learn=learned_run)
    row = Simulation.objects.get(pk=pk)
    assert (row.state, "none of its events is in the database" in row.reason) == ("failed", True)


def refusal(client: APIClient, job: int) -> str:
    """What REST says is wrong, on the field; nothing is queued."""
    reply = ask(client, job)
    assert reply.status_code == 400
    assert not Simulation.objects.filter(state="queued").exists()
    [error] = reply.json()["errors"]
    assert (error["field"], error["found"]) == ("scenario", f"job-{job}")
    return str(error["expected"])


def test_what_was_not_recorded_is_refused_on_the_field(client: APIClient, job: Job) -> None:
    assert "(job 99999 does not exist)" in refusal(client, 99999)
    Job.objects.filter(pk=job.pk).update(state=JobState.RUNNING)
    assert f"(job {job.pk} is running; its tab What if simulates" in refusal(client, job.pk)
    Job.objects.filter(pk=job.pk).update(state=JobState.SUCCEEDED)
    RawEvent.objects.filter(kind="job-submitted").delete()
    assert "its log begins with slots-assigned" in refusal(client, job.pk)
    with pytest.raises(CommandError, match="not in this database"):
        printed("job-99999")


def test_a_job_of_which_too_little_was_recorded_is_refused(client: APIClient, job: Job) -> None:
    change_reports(lambda row: None if row.rank == 2 and row.iteration > 8 else {})
    assert f"(of job {job.pk}, w2 reported 9 iterations, and 12 of each worker are needed)" in refusal(client, job.pk)
    Process.objects.filter(job=job, role="worker", index=2).update(state="lost")
    assert ask(client, job.pk).status_code == 202, "whoever was lost may have done less"


def test_a_simulated_run_is_to_be_simulated_by_its_scenario(client: APIClient, job: Job) -> None:
    ask(client, job.pk, policies=["recorded"])
    simulations_run(learn=learned_run)
    run = Simulation.objects.get().runs.get().pk
    assert f"python manage.py simulate job-{job.pk} --policies recorded --seed 5" in refusal(client, run)


def test_a_job_that_sums_among_its_workers_is_refused(client: APIClient, job: Job) -> None:
    spec = replace(parse_spec(job.spec), servers=0, communication="all-reduce")
    Job.objects.filter(pk=job.pk).update(spec=spec_document(spec))
    reply = ask(client, job.pk)
    assert (reply.status_code, reply.json()["errors"][0]["field"]) == (400, "spec.communication")
