"""A job whose stored spec this release does not read: it is shown as that, and no page or list of others fails."""

import re
from collections.abc import Callable, Iterator
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from controlplane.core.states import JobState
from controlplane.jobs.models import Job
from controlplane.protocol import RELEASE
from controlplane.protocol.spec import CHOICES
from controlplane.runtime.scheduler import begin_logs
from frontend.queries.history import History
from tests.frontend import factories

pytestmark = pytest.mark.django_db

UNREADABLE: dict[str, dict[str, Any]] = {
    "nothing of a spec": {},
    "a field of another type": factories.spec() | {"workers": "many"},
    "an option that was taken once": factories.spec() | {"workload": {"name": "mlp", "prefetch": 10**9}},
    "policies that were there once": factories.spec() | {"synchronization": {key: {"name": "gone"} for key in CHOICES}},
}
ASKS_FOR_MORE = {
    "/logout/",
    "/favicon.ico",
    "/admin/login/",
    "/simulations/job/",
    "/login/oidc/",
    "/login/oidc/return/",
}


def addresses(patterns: Any = None, before: str = "/") -> Iterator[str]:
    """Every page and every path of REST that needs no number."""
    for each in get_resolver().url_patterns if patterns is None else patterns:
        route = str(each.pattern)
        if isinstance(each, URLResolver) and not route.startswith("admin"):
            yield from addresses(each.url_patterns, before + route)
        elif isinstance(each, URLPattern) and "<" not in route and not re.search(r"[\\(^]", route):
            yield before + route


@pytest.fixture
def admin(redis_url: str) -> Client:
    user = User.objects.create(username="ada", is_superuser=True, is_staff=True)
    user.groups.add(Group.objects.get_or_create(name="admin")[0])
    client = Client(raise_request_exception=False)
    client.force_login(user)
    return client


def jobs_with(spec: dict[str, Any]) -> list[Job]:
    agents = factories.make_agents()
    found = []
    for state in (JobState.SUBMITTED, JobState.RUNNING, JobState.FAILED):
        job = factories.make_job(state=state)
        if state != JobState.SUBMITTED:
            factories.make_processes(job, agents)
            factories.make_reports(job, [factories.Pace(shares=factories.EVEN)] * 12)
        found.append(job)
    Job.objects.filter(pk__in=[job.pk for job in found]).update(spec=spec)
    return found


def answers(client: Client) -> dict[str, int]:
    """What everything that can be asked for answers with."""
    found = {address: client.get(address).status_code for address in sorted(set(addresses()) - ASKS_FOR_MORE)}
    return {address: status for address, status in found.items() if status != 405}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_one_unreadable_job_fails_no_page_and_no_list(kind: str, admin: Client) -> None:
    jobs_with(UNREADABLE[kind])
    other = factories.make_job(name="readable")
    factories.make_job(name="queued", state=JobState.SUBMITTED)
    assert {address: status for address, status in answers(admin).items() if status >= 400} == {}
    for address in ("/jobs/", "/api/v1/jobs"):
        html = admin.get(address).content.decode()
        assert "readable" in html
        assert "queued" in html
    assert admin.get(f"/jobs/{other.pk}/").status_code == 200


def test_one_job_with_broken_measurements_fails_no_page_and_no_list(
    admin: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _, victim, _ = jobs_with(factories.spec())
    other = factories.make_job(name="other")
    factories.make_reports(other, [factories.Pace(shares=factories.EVEN)] * 12)
    whole = {name: getattr(History, name) for name in ("columns", "windows")}
    for name, read in whole.items():
        monkeypatch.setattr(History, name, broken_for(victim.pk, read))
    assert {address: status for address, status in answers(admin).items() if status >= 400} == {}
    listed = unescape(admin.get("/jobs/").content.decode())
    assert f"stored data of {victim} cannot be read (ValueError: a column of no length)" in listed
    assert f"stored data of {other}" not in listed
    assert f"stored data of {victim} cannot be read" in caplog.text


def broken_for(job: int, read: Callable[..., Any]) -> Callable[..., Any]:
    def columns(history: History, *args: Any, **kwargs: Any) -> Any:
        if history._job.pk == job:
            raise ValueError("a column of no length")
        return read(history, *args, **kwargs)

    return columns


def test_it_is_reported_in_the_list_and_in_the_place_of_its_page(admin: Client) -> None:
    job, *_ = jobs_with(UNREADABLE["an option that was taken once"])
    told = f"Paceline {RELEASE} refuses the stored spec of {job}: workload.prefetch: found 1000000000, expected"
    for address, status in (
        ("/jobs/", 200),
        (f"/jobs/{job.pk}/", 409),
        (f"/api/v1/jobs/{job.pk}/figures/iteration-time", 409),
    ):
        reply = admin.get(address)
        assert reply.status_code == status, address
        assert told in unescape(reply.content.decode()), address


def test_one_that_has_not_begun_ends_with_that_reason_instead_of_waiting_forever(admin: Client) -> None:
    job, *_ = jobs_with(UNREADABLE["a field of another type"])
    begin_logs()
    job.refresh_from_db()
    assert job.state == JobState.FAILED
    assert "workers: found 'many', expected" in job.reason


def test_one_that_has_not_begun_can_be_stopped(admin: Client) -> None:
    job, *_ = jobs_with(UNREADABLE["a field of another type"])
    reply = admin.post(f"/api/v1/jobs/{job.pk}/actions/stop", content_type="application/json")
    assert reply.status_code == 202, reply.content
    job.refresh_from_db()
    assert (job.state, job.is_over) == (JobState.CANCELLED, True)
    assert job.reason.startswith("stopped by ada; Paceline ")


@pytest.mark.parametrize("command", ["report {} -o -", "whatif {}", "replay {}", "simulate job-{} --policies bsp"])
def test_commands_about_it_report_it_in_a_sentence(command: str) -> None:
    *_, job = jobs_with(UNREADABLE["a field of another type"])
    with pytest.raises(CommandError, match=r"refuses the stored spec of job \d+ .*workers: found 'many', expected"):
        call_command(*command.format(job.pk).split())
