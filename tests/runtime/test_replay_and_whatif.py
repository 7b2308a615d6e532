"""``manage.py replay`` and ``manage.py whatif`` on a job whose log is in the database."""

import io
import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError

from controlplane.core.states import JobState
from controlplane.jobs.models import Decision, Job
from controlplane.jobs.projections import Answer, apply_answers
from controlplane.protocol.spec import spec_document
from controlplane.runtime import log
from controlplane.simulator.cluster import Cluster
from controlplane.simulator.control import Recording
from controlplane.simulator.disturbances import Wavering
from controlplane.telemetry.models import RawEvent
from controlplane.telemetry.projections import Logged, record_events
from controlplane.telemetry.simulations import simulation_run, simulation_submit
from tests.simulator.worlds import LB_BSP, world

pytestmark = pytest.mark.django_db


def stored(recording: Recording, cluster: Cluster) -> Job:
    """What ingest makes of a log."""
    user = User.objects.create(username="ann")
    job = Job.objects.create(name="digits", spec=spec_document(cluster.spec), submitted_by=user)
    logged = [Logged(entry=entry, payload=log.encode_event(entry.event)) for entry in recording.entries]
    sequence = 0
    for commands in (recording.commands[:100], recording.commands[100:]):
        apply_answers(job.pk, [Answer(incarnation=0, sequence=sequence, commands=commands)])
        sequence += len(commands)
    record_events(job.pk, 0, logged, [True] * len(logged))
    job.refresh_from_db()
    return job


@pytest.fixture
def job() -> Job:
    recording = Recording(keep=True)
    cluster = Cluster(world(wavering=Wavering(noise=0.1)), LB_BSP, seed=3, recording=recording)
    cluster.run()
    return stored(recording, cluster)


def run(command: str, job: int, *arguments: str) -> str:
    out = io.StringIO()
    call_command(command, str(job), *arguments, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def refused(command: str, job: int, *arguments: str) -> CommandError:
    with pytest.raises(CommandError) as found:
        run(command, job, *arguments)
    assert found.value.returncode == 2
    return found.value


def test_a_job_is_replayed_to_the_decisions_that_it_has(job: Job) -> None:
    assert job.state == JobState.SUCCEEDED
    assert "all decisions equal the recorded ones" in run("replay", job.pk)
    document = json.loads(run("replay", job.pk, "--json"))
    assert (document["difference"], document["decisions"]) == (None, Decision.objects.count())


def test_a_decision_that_was_altered_is_found_and_the_exit_code_reports_it(job: Job) -> None:
    row = Decision.objects.filter(kind="set-shares").order_by("sequence")[1]
    Decision.objects.filter(pk=row.pk).update(payload=row.payload | {"iteration": row.payload["iteration"] + 1})
    with pytest.raises(SystemExit) as ended:
        run("replay", job.pk, "--json")
    assert ended.value.code == 1


def test_what_if_reports_how_good_its_model_is_and_what_others_would_have_done(job: Job) -> None:
    answer = json.loads(run("whatif", job.pk, "--policies", "bsp,asp", "--like", "0", "--seeds", "2", "--json"))
    assert answer["fit"]["error_median"] < 0.15
    names = {one["name"]: one for one in answer["alternatives"]}
    changed = {"without w0", "without w1", "without w2", "without w3", "one more like w0", "twice the bandwidth"}
    assert names.keys() == {"bsp", "asp", *changed}
    assert {name for name, one in names.items() if one["kind"] == "machines"} == changed
    assert names["bsp"]["saved"] < -1.0
    assert names["one more like w0"]["saved"] > 0.1
    table = run("whatif", job.pk, "--policies", "bsp", "--without", "3", "--seeds", "2")
    assert "the model, learned from this very run" in table
    assert "without w3" in table
    assert "without w0" not in table


def test_a_simulated_run_is_played_otherwise_on_its_scenario() -> None:
    row = simulation_submit(scenario="demo", policies=["bsp"], seed=3, user=User.objects.create(username="ann"))
    simulation_run(row.pk)
    answer = json.loads(run("whatif", row.runs.get().pk, "--policies", "lb-bsp-linear", "--seeds", "2", "--json"))
    assert (answer["fit"]["what"], answer["fit"]["error_median"]) == ("seeds", pytest.approx(0.0, abs=1e-6))
    saved = {one["name"]: one["saved"] for one in answer["alternatives"]}
    assert saved["lb-bsp-linear"] > 0.5
    assert saved["without w3"] > 0.2
    assert saved["one more like w0"] > 0.1
    assert saved["twice the bandwidth"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("command", ["replay", "whatif"])
def test_a_job_that_is_not_there_is_refused(command: str, job: Job) -> None:
    assert f"job 99999: not in this database; the latest is job {job.pk}" in str(refused(command, 99999))


@pytest.mark.parametrize("command", ["replay", "whatif"])
def test_a_log_without_its_beginning_is_refused(command: str, job: Job) -> None:
    RawEvent.objects.filter(kind="job-submitted").delete()
    assert "its log begins with slots-assigned" in str(refused(command, job.pk))
    RawEvent.objects.all().delete()
    assert "none of its events is in the database" in str(refused(command, job.pk))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--without", "7"], "without: found '7', expected ranks of workers present to the end: 0, 1, 2, 3"),
        (["--without", "the slow one"], "expected ranks of workers present to the end: 0, 1, 2, 3"),
        (["--like", "7"], "like: found '7', expected ranks of workers present to the end: 0, 1, 2, 3"),
        (["--bandwidth", "-2"], "bandwidth: found '-2', expected factors above 0 separated by commas, such as 2,0.5"),
        (["--policies", "fastest"], "policies: found 'fastest'"),
    ],
)
def test_what_cannot_be_played_is_refused(job: Job, arguments: list[str], sentence: str) -> None:
    assert sentence in str(refused("whatif", job.pk, *arguments))


def test_one_seed_is_refused_since_it_reports_nothing_of_the_uncertainty(job: Job) -> None:
    with pytest.raises(CommandError, match="expected at least 2"):
        run("whatif", job.pk, "--seeds", "1")


def test_a_job_that_has_hardly_begun_is_refused(job: Job) -> None:
    reports = RawEvent.objects.filter(kind="report").order_by("pk")
    keep = list(reports.values_list("pk", flat=True)[:12])
    reports.exclude(pk__in=keep).delete()
    error: Any = refused("whatif", job.pk)
    assert "10 are needed: let the job run for longer" in str(error)
