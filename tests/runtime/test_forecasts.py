"""What else a job could do: learned from its last minutes, only while someone looks, and within bounds."""

import json
import time
from datetime import timedelta
from threading import Event
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from controlplane.core.states import JobState
from controlplane.jobs.models import Decision, Job
from controlplane.protocol.messages import IterationReport, ServerHello
from controlplane.runtime import forecasts, names, subprocesses
from controlplane.runtime.forecasts import CannotPlay, due, in_a_process, make, want
from controlplane.runtime.models import Forecast
from controlplane.runtime.recorded_jobs import recent_log
from controlplane.runtime.redis import Client
from controlplane.simulator.cluster import Cluster
from controlplane.simulator.control import Recording
from controlplane.simulator.disturbances import Wavering
from controlplane.simulator.recorded_run import read_run
from tests.runtime.test_replay_and_whatif import run, stored
from tests.simulator.worlds import LB_BSP, world

pytestmark = pytest.mark.django_db


@pytest.fixture
def job() -> Job:
    recording = Recording(keep=True)
    Cluster(world(wavering=Wavering(noise=0.1)), LB_BSP, seed=3, recording=recording).run()
    cluster = Cluster(world(wavering=Wavering(noise=0.1)), LB_BSP, seed=3)
    return stored(recording, cluster)


def reports(job: Job, seconds: int) -> list[Any]:
    return [
        (entry.event.rank, entry.event.message.iteration)
        for entry in recent_log(job.pk, seconds)
        if isinstance(getattr(entry.event, "message", None), IterationReport)
    ]


def test_the_last_seconds_are_a_job_that_begins_where_all_have_reported(job: Job) -> None:
    found, whole = reports(job, 3), reports(job, 10_000)
    assert 0 < len(found) < len(whole)
    assert {rank for rank, iteration in found if iteration == 0} == {0, 1, 2, 3}
    said = [getattr(entry.event, "message", None) for entry in recent_log(job.pk, 3)]
    assert any(isinstance(message, ServerHello) for message in said)


def test_nothing_before_the_last_change_of_policies_is_learned_from(job: Job) -> None:
    last = max(iteration for _, iteration in reports(job, 10_000))
    payload = {"first_iteration": last - 11, "choices": {"batching": {"name": "uniform"}}}
    Decision.objects.create(
        job=job, incarnation=0, sequence=10**6, at=timezone.now(), kind="change-policies", cause="1-0", payload=payload
    )
    assert {iteration for _, iteration in reports(job, 10_000)} == set(range(12))
    assert read_run(job.pk, recent_log(job.pk, 10_000)).spec.synchronization.batching.name == "uniform"


def test_a_job_is_due_while_someone_looks_and_its_forecast_is_old(job: Job, client: Client) -> None:
    Job.objects.filter(pk=job.pk).update(iteration=40, state=JobState.RUNNING, finished_at=None)
    assert due(client) == []
    want(job.pk, client)
    assert due(client) == [job.pk]
    make(job.pk, lambda pk: {"job": pk})
    assert due(client) == []
    Forecast.objects.update(made_at=timezone.now() - timedelta(minutes=5))
    assert due(client) == [job.pk]
    client.zadd(names.FORECASTS_WANTED, {str(job.pk): time.time() - 3600})
    assert due(client) == []


def test_a_job_that_is_over_is_played_once(job: Job, client: Client) -> None:
    Job.objects.filter(pk=job.pk).update(iteration=40, finished_at=timezone.now() - timedelta(hours=1))
    want(job.pk, client)
    assert due(client) == [job.pk]
    make(job.pk, lambda pk: {"job": pk})
    Forecast.objects.update(made_at=timezone.now() - timedelta(minutes=5))
    assert due(client) == []


def test_what_came_to_nothing_is_tried_again_though_the_job_is_over(job: Job, client: Client) -> None:
    def break_off(pk: int) -> dict[str, Any]:
        raise CannotPlay("it took more than 120 s and was stopped")

    Job.objects.filter(pk=job.pk).update(iteration=40, finished_at=timezone.now() - timedelta(hours=1))
    want(job.pk, client)
    make(job.pk, break_off)
    assert due(client) == []
    Forecast.objects.update(made_at=timezone.now() - timedelta(minutes=5))
    assert due(client) == [job.pk]


def test_what_came_out_is_kept_and_so_is_why_nothing_did(job: Job) -> None:
    made = make(job.pk, lambda pk: json.loads(run("whatif", pk, "--last", "3", "--seeds", "2", "--json")))
    assert made.answer is not None
    assert {one["name"] for one in made.answer["alternatives"]} >= {"bsp", "ssp", "without w0"}
    assert made.answer["fit"]["error_median"] < 0.5

    def refuse(pk: int) -> dict[str, Any]:
        raise CannotPlay("w2 has 3 iterations, 10 are needed")

    assert (make(job.pk, refuse).answer, Forecast.objects.get().reason) == (None, "w2 has 3 iterations, 10 are needed")


@pytest.mark.integration
@pytest.mark.django_db(transaction=True)
def test_the_process_that_plays_reports_in_one_line_why_it_cannot(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """It reads the same database, in which there is no such job."""
    if connection.vendor != "sqlite":
        pytest.skip("the test's own database is a file only in SQLite")
    monkeypatch.setattr(subprocesses, "NICENESS", 0)  # On a busy machine who yields to all others never gets a turn.
    monkeypatch.setattr(forecasts, "MOST_S", 600.0)
    monkeypatch.setenv("PACELINE_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("DATABASE_URL", f"sqlite:///{connection.settings_dict['NAME']}")
    with pytest.raises(CannotPlay, match=r"^job 12345: not in this database"):
        in_a_process(Event())(12345)
