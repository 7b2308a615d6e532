"""The clients against the real API: what is asked, typed answers, refusals with their words."""

import asyncio
import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from msgspec.structs import fields

import paceline
from controlplane.api.serializers.jobs import JobDocument
from controlplane.jobs.models import AuditEntry, Decision, Job, Process
from controlplane.people.teams import member_set, team_create
from paceline import AsyncClient, Client, PacelineError, Refused, Unreachable
from paceline.client import types
from tests.support.rows import SPEC, online_agent

Naps = Callable[..., list[float]]


def test_a_job_is_submitted_watched_and_stopped(client: Client, naps: Naps) -> None:
    job = client.submit(SPEC)
    assert (job.name, job.state, job.workers, job.spec["seed"]) == ("digits", "submitted", 2, 7)
    assert job.waiting is not None
    assert job.created_at is not None
    naps(
        lambda: Job.objects.update(state="running", iteration=50),
        lambda: None,
        lambda: Job.objects.update(state="succeeded", reason="reached 100 iterations"),
    )
    seen = [(each.state, each.iteration) for each in client.watch(job.id)]
    assert seen == [("submitted", 0), ("running", 50), ("succeeded", 50)]
    assert client.wait(job.id).succeeded
    other = client.submit("name: two\nworkload: softmax-regression\nworkers: 1\nbatch_size: 8\nstop: {iterations: 5}")
    assert client.stop(other.id).name == "two"


def test_a_job_is_submitted_for_a_team_and_found_by_it(client: Client) -> None:
    vision = team_create(name="vision", actor="root")
    member_set(team=vision, user=User.objects.get(), role="operator", actor="root")
    team_create(name="speech", actor="root")
    other = client.submit(SPEC, team="speech")  # an admin may for all
    assert client.check(SPEC, team="vision").spec["name"] == "digits"
    assert [client.submit(SPEC).team, other.team] == ["vision", "speech"]
    assert [job.id for job in client.jobs(team="speech")] == [other.id]
    with pytest.raises(Refused, match="in no team 'none'"):
        client.submit(SPEC, team="none")


def test_one_key_is_one_job(client: Client) -> None:
    first, again = (client.submit(SPEC, idempotency_key="once").id for _ in range(2))
    assert first == again
    assert client.submit(SPEC).id != first


def test_a_refusal_has_subject_found_expected_and_cure(client: Client) -> None:
    with pytest.raises(Refused) as caught:
        client.submit(SPEC | {"workers": 0})
    refused = caught.value
    assert (refused.status, refused.subject, refused.found, refused.expected) == (400, "workers", 0, "`int` >= 1")
    assert refused.cure == "workers: `int` >= 1"
    assert refused.lines() == ["workers: found 0, expected `int` >= 1"]
    assert refused.problem.trace_id
    with pytest.raises(Refused) as caught:
        client.pause(client.submit(SPEC).id)
    assert caught.value.status == 409
    assert caught.value.cure == str(caught.value)
    assert "only one that is running can be paused" in str(caught.value)


def test_a_token_that_is_refused_reports_how_to_get_one(live_server: Any, db: None) -> None:
    with (
        Client(live_server.url, "made-up") as client,
        pytest.raises(Refused, match=r"manage\.py access NAME") as caught,
    ):
        client.jobs()
    assert caught.value.status == 401


def test_no_one_there_is_reported() -> None:
    with (
        Client("http://127.0.0.1:1", "t", patience=paceline.Patience(tries=1)) as client,
        pytest.raises(Unreachable, match=r"^http://127.0.0.1:1: does not answer \("),
    ):
        client.jobs()


@pytest.mark.parametrize(
    ("url", "token", "sentence"),
    [
        ("ftp://x", "t", "url: found 'ftp://x', expected an address such as"),
        (None, None, "no API token for http://127.0.0.1:8000: give one, or set PACELINE_API_TOKEN"),
        (None, "two words", "the API token holds other characters"),
    ],
)
def test_what_cannot_be_an_address_or_a_token_is_refused(
    url: str | None, token: str | None, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PACELINE_API_TOKEN", raising=False)
    monkeypatch.delenv("PACELINE_URL", raising=False)
    with pytest.raises(PacelineError) as caught:
        Client(url, token)
    assert str(caught.value).startswith(sentence)


def test_the_environment_reports_which_control_plane(
    live_server: Any, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACELINE_URL", f"{live_server.url}/")
    monkeypatch.setenv("PACELINE_API_TOKEN", token)
    with Client() as client:
        assert client.me() == types.Me(username="ann", role="admin")


def test_lists_are_read_to_their_end(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.client.calls.PAGE_SIZE", 2)
    numbers = [client.submit(SPEC | {"name": f"job {at}"}).id for at in range(5)]
    assert [job.id for job in client.jobs()] == numbers[::-1]
    assert [job.id for job in client.jobs(limit=3)] == numbers[:1:-1]
    assert [job.name for job in client.jobs(name="job 4", state="submitted")] == ["job 4"]
    assert client.jobs(state=["running", "paused"]) == []


def test_everything_about_a_running_job_is_typed(client: Client) -> None:
    job = client.submit(SPEC).id
    Job.objects.update(state="running")
    now = timezone.now()
    Process.objects.create(
        job_id=job, role="worker", index=1, instance="i", state="ready", state_since=now, started_at=now
    )
    Decision.objects.create(
        job_id=job, incarnation=1, sequence=1, at=datetime.now(UTC), kind="set-shares", reason="why", payload={"a": 1}
    )
    assert [each.kind for each in client.decisions(job, kind="set-shares", limit=5)] == ["set-shares"]
    assert [(process.role, process.index) for process in client.processes(job)] == [("worker", 1)]
    assert client.flags(job, open=True) == []
    policy = client.policy(job)
    assert (policy.barrier["name"], policy.etag) == ("bsp", '"0"')
    assert client.change_policy(job, barrier="ssp").changes == 1
    with pytest.raises(PacelineError, match=r"^change_policy: found nothing to change"):
        client.change_policy(job)
    assert client.pause(job).id == job
    assert [asked.action for asked in client.requests(job)] == ["job-pause", "job-change"]
    assert client.exclude_worker(job, 1).about == "w1"
    assert client.events(job, limit=1) == client.events(job)[:1]
    assert client.report(job).lstrip().lower().startswith("<!doctype html>")
    assert list(client.metrics(job, "accuracy").columns()) == ["iteration", "worker", "accuracy"]
    assert "compute_s" in client.measurements(job)
    assert client.figure(job, "iteration-time", theme="dark").to_dict().keys() >= {"data", "layout"}
    assert client.figure_json(job, "iteration-time").keys() >= {"data", "layout"}
    with pytest.raises(Refused, match="no such figure; there are"):
        client.figure(job, "nothing")


def test_machines_are_listed_and_invited(client: Client) -> None:
    online_agent("m1")
    assert [(agent.name, agent.state) for agent in client.agents()] == [("m1", "online")]
    invitation = client.invite("m2", labels={"gpu": "a100"})
    assert invitation.command.startswith("python -m workers join")
    assert AuditEntry.objects.filter(action="agent-invite").exists()


def test_tokens_are_made_and_revoked(client: Client) -> None:
    made = client.new_token(lifetime_s=60)
    assert made.token
    assert {each.id for each in client.tokens()} >= {made.id}
    client.revoke_token(made.id)
    assert made.id not in {each.id for each in client.tokens()}


def test_simulations_are_begun_and_waited_for(client: Client, naps: Naps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.api.views.simulations.current_app.send_task", lambda name: None)
    assert "demo" in {scenario.name for scenario in client.scenarios()}
    begun = client.simulate("demo", policies=["bsp"], workers=3)
    assert (begun.state, begun.policies, begun.variation["workers"]) == ("queued", ["bsp"], 3)
    naps(lambda: client.cancel_simulation(begun.id))
    assert client.wait_simulation(begun.id).state == "cancelled"
    assert [each.id for each in client.simulations()] == [begun.id]
    with pytest.raises(Refused, match=r"job.* 99"):
        client.what_if(99, policies=["asp"])


def test_a_job_has_each_field_of_the_apis_document() -> None:
    known = {field.name for field in fields(types.Job)}
    assert set(JobDocument.Meta.fields) <= known
    assert known - set(JobDocument.Meta.fields) <= {"launch", "token"}


async def test_the_asynchronous_client_sends_the_same_requests(live_server: Any, redis_url: str, token: str) -> None:
    async with AsyncClient(live_server.url, token) as client:
        jobs = await asyncio.gather(*(client.submit(SPEC | {"name": name}) for name in ("a", "b")))
        assert {job.name for job in await client.jobs()} == {"a", "b"}
        for job in jobs:
            await client.stop(job.id)
        with pytest.raises(Refused, match="expected `int` >= 1"):
            await client.submit(SPEC | {"workers": 0})
        with pytest.raises(TimeoutError, match=r"expected it to be over by then$"):
            await client.wait(jobs[0].id, seconds=0.02, every=0.01)
        seen = [job async for job in client.watch(jobs[0].id) if await _end(client, job)]
        assert seen[-1].is_over


def test_both_clients_have_the_same_methods_with_words_and_parameters() -> None:
    def methods(kind: type) -> dict[str, Any]:
        return {name: value for name, value in vars(kind).items() if inspect.isfunction(value) and name[0] != "_"}

    ours, theirs = methods(Client), methods(AsyncClient)
    assert ours.keys() == theirs.keys()
    assert str(inspect.signature(Client.job)) == "(self, number: int) -> paceline.client.types.Job"
    assert all(method.__doc__ for method in ours.values())
    assert [*inspect.signature(AsyncClient.stop).parameters] == ["self", "number", "reason"]


async def _end(client: AsyncClient, job: types.Job) -> bool:
    if not job.is_over:
        await asyncio.to_thread(Job.objects.filter(pk=job.id).update, state="cancelled")
    return True
