"""The page of one machine: everything that ran on it, its speed, what was found, what was written."""

import json
from datetime import timedelta

import plotly.io
import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from controlplane.fleet.credentials import credential_issue, credential_kept, rotation_request
from controlplane.fleet.models import Agent
from controlplane.fleet.selectors import digest
from controlplane.jobs.models import Flag, Job, Process
from controlplane.people.models import Team
from controlplane.people.teams import member_set, owner_set, team_create
from frontend.build import build_machine, machine_etag
from frontend.figures import MACHINES
from frontend.queries.machine import flags, instances, lines, load, speeds
from tests.frontend import factories
from tests.frontend.test_pages import text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def job() -> Job:
    return factories.demo_job()


def machine(name: str = "machine-3") -> Agent:
    return Agent.objects.get(name=name)


def test_its_history_is_its_own(job: Job) -> None:
    assert [(life.title, life.job) for life in instances(machine())] == [("w3", job.pk)]
    assert {life.title for life in instances(machine("machine-0"))} == {"w0", "s0"}


def test_its_speed_is_reported_at_each_batch_size(job: Job) -> None:
    found = speeds(machine())
    assert [each.batch.tolist() for each in found.series] == [[23, 64]]
    busy = [23 / 250 + 0.007, 64 / 250 + 0.007]
    assert found.series[0].samples_per_second.tolist() == pytest.approx([23 / busy[0], 64 / busy[1]])
    assert instances(machine())[0].samples_per_second == pytest.approx(23 / busy[0])


def test_a_finding_belongs_to_the_machine_where_the_worker_ran_then(job: Job) -> None:
    assert [flag.title for flag in flags(machine())] == ["w3"]
    assert flags(machine("machine-0")) == []
    Process.objects.filter(job=job, role="worker", index=3).update(started_at=Flag.objects.get().opened_at)
    assert len(flags(machine())) == 1
    Process.objects.filter(job=job, role="worker", index=3).update(ended_at=factories.START)
    assert flags(machine()) == []


def test_its_lines_and_load_are_in_order(job: Job) -> None:
    assert [line.process for line in lines(machine())] == ["w3", "w3"]
    found = load(machine())
    assert (len(found.at_ms), (found.at_ms[1:] > found.at_ms[:-1]).all()) == (6, True)


@pytest.mark.parametrize("name", MACHINES)
def test_its_figures_are_plotly_json_and_empty_ones_report_it(job: Job, name: str) -> None:
    assert len(plotly.io.from_json(build_machine(name, machine(), {"theme": "dark"}).decode()).data) > 0
    bare = Agent.objects.create(name="bare", credential_digest="bare")
    assert json.loads(build_machine(name, bare, {}))["layout"]["meta"]["empty"].endswith(".")


def test_a_figure_moves_when_its_machine_does(viewer: Client, job: Job) -> None:
    before = machine_etag("load", machine(), {})
    path = f"/api/v1/agents/{machine().pk}/figures/load"
    assert viewer.get(path)["ETag"] == before
    assert viewer.get(path, headers={"If-None-Match": before}).status_code == 304
    Job.objects.filter(pk=job.pk).update(iteration=61)
    assert machine_etag("load", machine(), {}) != before
    assert viewer.get(f"/api/v1/agents/{machine().pk}/figures/nothing").status_code == 404


def test_flags_rows_and_processes_lead_to_the_machine(viewer: Client, job: Job) -> None:
    link = f'href="/workers/{machine().pk}/"'
    for tab in ("overview", "heatmap", "processes"):
        assert link in viewer.get(f"/jobs/{job.pk}/?tab={tab}").content.decode()
    assert link in viewer.get("/workers/").content.decode()


def test_the_page_holds_all_of_it_and_an_idle_machine_reports_it(viewer: Client, job: Job) -> None:
    page = text_of(viewer, f"/workers/{machine().pk}/")
    assert "ValueError: no such data set" in page
    assert factories.flag_sentence() in page
    bare = Agent.objects.create(name="bare", credential_digest="bare")
    assert "No processes yet." in text_of(viewer, f"/workers/{bare.pk}/live/")
    assert viewer.get("/workers/9999/").status_code == 404


def test_what_runs_here_can_be_drained_and_excluded_by_operators(job: Job, operator: Client, viewer: Client) -> None:
    path = f"/workers/{machine('machine-0').pk}/"
    body = operator.get(path).content.decode()
    for control in ("drain-w0", "exclude-w0", "drain-s0"):
        assert f'id="job-{job.pk}-{control}"' in body
    assert f'data-post="/api/v1/jobs/{job.pk}/workers/0/actions/drain"' in body
    assert body.count('id="ask-dialog"') == 1
    assert "drain-w0" not in viewer.get(path).content.decode()
    Process.objects.update(state="stopped", ended_at=factories.START)
    assert "drain-w0" not in operator.get(path).content.decode()


def test_its_page_shows_when_its_credential_expires(viewer: Client, job: Job) -> None:
    path = f"/workers/{machine().pk}/"
    assert "It does not expire." in text_of(viewer, path)
    ends = timezone.now() + timedelta(days=40)
    Agent.objects.filter(pk=machine().pk).update(credential_expires_at=ends, can_rotate=True)
    renewed = f"is renewed over the machine's connection from {ends - timedelta(days=30):%Y-%m-%d} on."
    assert f"It expires at {ends:%Y-%m-%d %H:%M} UTC, and {renewed}" in text_of(viewer, path)
    row = viewer.get(f"/api/v1/agents/{machine().pk}").json()
    assert row["credential_expires_at"].startswith(f"{ends:%Y-%m-%dT%H}")
    Agent.objects.filter(pk=machine().pk).update(can_rotate=False)
    assert "its agent does not support renewal: update it before then" in text_of(viewer, path)
    Agent.objects.filter(pk=machine().pk).update(credential_expires_at=timezone.now())
    assert "must be re-enrolled with a token, from python manage.py enroll --name machine-3" in text_of(viewer, path)


def test_its_credential_is_rotated_from_its_page_and_pending_until_acknowledged(
    operator: Client, viewer: Client, job: Job
) -> None:
    agent, path = machine(), f"/workers/{machine().pk}/"
    button = f'data-post="/api/v1/agents/{agent.pk}/actions/rotate"'
    assert "Issued when the machine was last enrolled" in text_of(viewer, path)
    assert button not in viewer.get(path).content.decode()
    page = operator.get(path).content.decode()
    assert button in page
    assert 'data-ask="Rotate the credential of machine-3?"' in page
    Agent.objects.filter(pk=agent.pk).update(can_rotate=True)
    rotation_request(agent.pk)
    assert "The old credential stays valid until machine-3 has acknowledged the new one" in text_of(
        viewer, f"{path}live/"
    )
    assert button not in operator.get(path).content.decode()
    secret = credential_issue(agent.pk, None)
    assert secret is not None
    assert secret not in operator.get(path).content.decode()
    credential_kept(agent.pk, digest(secret))
    assert "and acknowledged." in text_of(viewer, f"{path}live/")
    assert button in operator.get(path).content.decode()


def test_admins_remove_it_from_its_page_while_it_is_away_and_holds_nothing(
    admin: Client, operator: Client, job: Job
) -> None:
    agent, path = machine(), f"/workers/{machine().pk}/"
    button = f'data-method="DELETE" data-post="/api/v1/agents/{agent.pk}"'
    Agent.objects.filter(pk=agent.pk).update(state=Agent.State.OFFLINE)
    assert button not in admin.get(path).content.decode()  # a job holds a slot
    agent.reservations.all().delete()
    found = admin.get(path).content.decode()
    assert button in found[found.index('id="scheduling-title"') : found.index('id="instances-title"')]
    assert button in admin.get(f"{path}live/").content.decode()
    assert button not in operator.get(path).content.decode()
    member_set(team=team_of(agent), user=User.objects.get(username="operator"), role="admin", actor="root")
    assert button not in operator.get(path).content.decode()
    Agent.objects.filter(pk=agent.pk).update(state=Agent.State.ONLINE, seen_at=timezone.now())
    assert button not in admin.get(path).content.decode()


def team_of(agent: Agent) -> Team:
    """A new team that owns the machine."""
    team = team_create(name="vision", actor="root")
    owner_set(row=agent, team=team, actor="root")
    return team
