"""What a job left behind, over REST."""

from datetime import UTC, datetime

import msgspec
import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from controlplane.core.events import StopRequested
from controlplane.jobs.models import Decision, Flag, Job, Process
from controlplane.policies import registry
from controlplane.telemetry.models import Cursor, RawEvent
from tests.api.conftest import problem, refused
from tests.support.rows import online_agent, submitted_job
from tests.telemetry.reports import store_reports
from tests.telemetry.test_series import report

FIGURE = "batch-size"
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
pytestmark = pytest.mark.django_db


@pytest.fixture
def job() -> Job:
    return submitted_job(User.objects.create_user("ada"))


def decide(job: Job, sequence: int, kind: str, **payload: object) -> Decision:
    return Decision.objects.create(
        job=job, incarnation=0, sequence=sequence, at=NOON, kind=kind, cause="1-0", reason="because", payload=payload
    )


def test_metrics_are_series_that_report_what_they_left_out(viewer: APIClient, job: Job) -> None:
    store_reports([report(job, rank, k) for rank in range(2) for k in range(50)])
    path = f"/api/v1/jobs/{job.pk}/metrics?metric=compute_s&metric=samples&worker=1&since=10&points=4"
    body = viewer.get(path).json()
    shape = [(s["metric"], s["unit"], s["worker"], s["raw_points"], s["thinned"]) for s in body["series"]]
    assert (body["job"], body["since"], shape) == (
        job.pk,
        10,
        [("compute_s", "s", 1, 40, True), ("samples", "samples", 1, 40, True)],
    )
    assert [len(s["values"]) for s in body["series"]] == [4, 4]


@pytest.mark.parametrize(
    ("query", "field", "found"),
    [
        ("", "metric", None),
        ("metric=speed_of_light", "metric.0", "speed_of_light"),
        ("metric=loss&since=-1", "since", "-1"),
        ("metric=loss&points=three", "points", "three"),
        ("metric=loss&worker=x", "worker.0", "x"),
    ],
)
def test_a_bad_query_is_named(viewer: APIClient, job: Job, query: str, field: str, found: object) -> None:
    body = refused(viewer.get(f"/api/v1/jobs/{job.pk}/metrics?{query}"))
    assert (body["status"], body["field"], body["found"]) == (400, field, found)


def test_decisions_come_with_cause_and_reason_the_latest_first(viewer: APIClient, job: Job) -> None:
    decide(job, 1, "set-roster", ranks=[0, 1])
    decide(job, 2, "set-shares", shares={"0": 64})
    rows = viewer.get(f"/api/v1/jobs/{job.pk}/decisions").json()["results"]
    assert [(row["kind"], row["cause"], row["reason"], row["payload"]) for row in rows] == [
        ("set-shares", "1-0", "because", {"shares": {"0": 64}}),
        ("set-roster", "1-0", "because", {"ranks": [0, 1]}),
    ]
    only = viewer.get(f"/api/v1/jobs/{job.pk}/decisions?kind=set-roster").json()["results"]
    assert [row["sequence"] for row in only] == [1]


def test_flags_can_be_filtered_by_open(viewer: APIClient, job: Job) -> None:
    for rank, closed in ((0, None), (1, NOON)):
        Flag.objects.create(
            job=job,
            key=f"{rank}:compute",
            rank=rank,
            kind="compute",
            persistence="lasting",
            sentence="slow",
            opened_at=NOON,
            closed_at=closed,
        )
    found = [
        [row["rank"] for row in viewer.get(f"/api/v1/jobs/{job.pk}/flags?{query}").json()["results"]]
        for query in ("open=true", "open=false", "")
    ]
    assert found == [[0], [1], [1, 0]]


def test_events_are_readable(viewer: APIClient, job: Job) -> None:
    payload = msgspec.msgpack.encode(StopRequested(actor="ada"))
    RawEvent.objects.create(job=job, incarnation=0, stream_id="5-0", kind="stop-requested", payload=payload)
    (row,) = viewer.get(f"/api/v1/jobs/{job.pk}/events").json()["results"]
    assert (row["stream_id"], row["event"]) == ("5-0", {"type": "stop-requested", "actor": "ada", "reason": ""})


def test_the_placement_that_holds_is_the_latest(viewer: APIClient, job: Job) -> None:
    blocks = [
        {"index": 0, "start": 0, "stop": 600, "server": 0},
        {"index": 1, "start": 600, "stop": 640, "server": 1},
        {"index": 2, "start": 640, "stop": 650, "server": 0},
    ]
    decide(job, 1, "set-placement", version=1, policy="round-robin", blocks=[])
    decide(job, 2, "set-placement", version=2, policy="round-robin", blocks=blocks)
    assert viewer.get(f"/api/v1/jobs/{job.pk}/placement").json() == {
        "job": job.pk,
        "version": 2,
        "policy": "round-robin",
        "at": "2026-03-02T12:00:00Z",
        "reason": "because",
        "blocks": blocks,
        "elements": {"0": 610, "1": 40},
    }


def test_before_the_servers_are_there_nothing_is_placed(viewer: APIClient, job: Job) -> None:
    found = refused(viewer.get(f"/api/v1/jobs/{job.pk}/placement"))
    assert found == problem(404, f"job {job.pk} has no placement yet: not all of its servers have connected")


def test_workers_and_servers_are_listed_with_their_machine(viewer: APIClient, job: Job) -> None:
    agent = online_agent("m1")
    for role in ("worker", "server"):
        Process.objects.create(
            job=job,
            role=role,
            index=0,
            instance="a",
            agent=agent,
            state="ready",
            state_since=NOON,
            started_at=NOON,
        )
    for collection, role in (("workers", "worker"), ("servers", "server")):
        (row,) = viewer.get(f"/api/v1/{collection}?job={job.pk}&state=ready").json()["results"]
        assert (row["role"], row["job"], row["agent"], row["agent_id"]) == (role, job.pk, "m1", agent.pk)
    both = viewer.get(f"/api/v1/jobs/{job.pk}/processes").json()["results"]
    assert [row["role"] for row in both] == ["worker", "server"]


def test_a_figure_is_sent_once_and_again_only_when_history_moved(viewer: APIClient, job: Job) -> None:
    store_reports([report(job, 0, k) for k in range(3)])
    cursor = Cursor.objects.create(job=job, stream="events", position="5-0")
    path = f"/api/v1/jobs/{job.pk}/figures/{FIGURE}"
    first = viewer.get(path)
    etag = {"If-None-Match": f'"other", W/{first["ETag"]}'}
    assert (first.status_code, first["Cache-Control"], set(first.json())) == (
        200,
        "private, no-cache",
        {"data", "layout"},
    )
    again = viewer.get(path, headers=etag)
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", first["ETag"])
    cursor.position = "6-0"
    cursor.save()
    assert viewer.get(path, headers=etag).status_code == 200


def test_a_figure_that_does_not_exist_names_those_that_do(viewer: APIClient, job: Job) -> None:
    found = refused(viewer.get(f"/api/v1/jobs/{job.pk}/figures/nothing"))
    assert found["detail"].startswith("figure 'nothing': no such figure; there are ")


def test_a_bad_figure_query_is_named(viewer: APIClient, job: Job) -> None:
    found = refused(viewer.get(f"/api/v1/jobs/{job.pk}/figures/{FIGURE}?theme=mauve"))
    assert (found["field"], found["found"], found["expected"]) == ("theme", "mauve", "one of light, dark")


def test_a_window_of_iterations_is_to_be_had_as_a_trace(viewer: APIClient, job: Job) -> None:
    store_reports([report(job, rank, k) for k in range(9) for rank in range(2)])
    trace = viewer.get(f"/api/v1/jobs/{job.pk}/trace?first=2&count=3").json()
    assert {event["args"]["iteration"] for event in trace["traceEvents"] if event["ph"] == "X"} == {2, 3, 4}
    found = refused(viewer.get(f"/api/v1/jobs/{job.pk}/trace?count=99"))
    assert (found["field"], found["expected"]) == ("count", "an integer from 1 to 20")


def test_catalogues_report_what_can_be_chosen_and_set(viewer: APIClient) -> None:
    policies = {(row["question"], row["name"]): row for row in viewer.get("/api/v1/policies").json()}
    chosen = policies["batching", "lb-bsp-cpu"]
    assert chosen["defaults"] == {
        "predictor": "narx",
        "shadows": [],
        "score_every": 50,
        "literal": False,
        "objective": "time",
        "slack": 0.1,
    }
    assert chosen["parts"] == {"predictor": "prediction", "shadows": "prediction"}
    barriers = {name for question, name in policies if question == "barrier"}
    assert barriers == set(registry.names("barrier")) >= {"bsp", "asp", "ssp", "pbsp", "pssp", "aggressive", "backup"}
    workloads = {row["name"]: row for row in viewer.get("/api/v1/workloads").json()}
    assert workloads["als"]["datasets"] == ["movielens-like"]
    assert workloads["resnet"]["defaults"] == {"depth": 32, "width": 16}
    assert [data["schema"]["required"] for data in workloads["cnn"]["data"] if data["name"] == "idx"] == [["path"]]
