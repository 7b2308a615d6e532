"""Teams: every endpoint by membership, made from the schema; owners, quotas, and the order of the queue."""

import html
import io
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client
from django.utils import timezone
from drf_spectacular.generators import SchemaGenerator
from knox.models import AuthToken
from rest_framework.test import APIClient

from controlplane.alerts.models import Alert, Delivery, Silence, Target
from controlplane.core.states import JobState
from controlplane.fleet.models import Agent
from controlplane.jobs.models import AuditEntry, Job, Process
from controlplane.people.models import Quota, Team
from controlplane.people.quotas import default_quota, quota_set
from controlplane.people.teams import TeamRefused, member_set, owner_set, team_create, team_delete, team_for
from controlplane.telemetry.models import Simulation
from controlplane.telemetry.simulations import simulation_submit
from frontend.models import JobNote, JobTag
from tests.api.conftest import refused
from tests.api.test_scheduling import running_job
from tests.support.rows import SPEC, online_agent, submitted_job

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_url")]

OWNED = re.compile(r"^/api/v1/(jobs|agents|simulations|teams)/\{\w+\}")
LISTS = {
    "/api/v1/jobs": "secret-digits",
    "/api/v1/agents": "secret-machine",
    "/api/v1/workers": "secret-process",
    "/api/v1/servers": "secret-process",
    "/api/v1/queue": "secret-queued",
    "/api/v1/simulations": "vision",
    "/api/v1/teams": "vision",
    "/api/v1/quotas": "team vision",
    "/api/v1/alerts": "secret-alert",
    "/api/v1/alerts/news": "secret-alert",
    "/api/v1/alerts/silences": "secret-silence",
    "/api/v1/alerts/deliveries": "secret-error",
}
"""Lists of what teams may own, each with the mark of a row that belongs to a team."""

FREE = {
    *("/api/v1/", "/api/v1/me", "/api/v1/schema", "/api/v1/docs", "/api/v1/jobs/check", "/api/v1/agents/enrol"),
    *("/api/v1/agents/enrolment-tokens", "/api/v1/agents/enrolment-tokens/{id}"),
    "/api/v1/audit",
    *("/api/v1/policies", "/api/v1/workloads", "/api/v1/scenarios"),
    *("/api/v1/users", "/api/v1/users/{username}/actions/disable", "/api/v1/users/{username}/actions/enable"),
    *("/api/v1/tokens", "/api/v1/tokens/{key}", "/api/v1/sessions", "/api/v1/sessions/{number}"),
    "/api/v1/comparisons/{name}",
    *("/api/v1/views", "/api/v1/views/{id}"),
    *("/api/v1/alerts/rules", "/api/v1/alerts/rules/{id}", "/api/v1/alerts/document", "/api/v1/alerts/targets"),
    *("/api/v1/alerts/targets/{id}", "/api/v1/alerts/targets/{id}/actions/test", "/api/v1/alerts/silences/{id}"),
    *("/api/v1/alerts/deliveries/{id}/actions/resend",),
    *("/api/v1/quotas/users/{username}", "/api/v1/quotas/teams/{name}", "/api/v1/quotas/default"),
}
"""What no team owns: roles in the installation decide."""


def operations() -> list[tuple[str, str]]:
    """Every operation of the schema, as method and path."""
    paths = SchemaGenerator().get_schema(request=None, public=True)["paths"]
    verbs = {"get", "post", "put", "patch", "delete"}
    return [(verb.upper(), path) for path, entry in paths.items() for verb in entry if verb in verbs]


def plain(path: str) -> str:
    return re.sub(r"\{(pk|id)\}", "{id}", path)


BY_KEY = [("PUT", "/api/v1/jobs/{id}/model")]
"""For processes of the job alone, by their own keys."""

ROLES_UPWARDS = ["member", "operator", "admin", "root"]
"""Roles in a team, then admins of the installation."""

LOWEST = {
    ("PUT", "/api/v1/agents/{id}/labels"): "admin",
    ("DELETE", "/api/v1/agents/{id}"): "root",
    ("PUT", "/api/v1/teams/{id}/members/{username}"): "admin",
    ("DELETE", "/api/v1/teams/{id}/members/{username}"): "admin",
    ("PATCH", "/api/v1/teams/{id}"): "root",
    ("DELETE", "/api/v1/teams/{id}"): "root",
    ("PUT", "/api/v1/jobs/{id}/owner"): "root",
    ("PUT", "/api/v1/agents/{id}/owner"): "root",
    ("PUT", "/api/v1/simulations/{id}/owner"): "root",
}
"""The lowest role that may write there; of every other operation that writes it is the team's operator."""

BELOW = [each for each in operations() if OWNED.match(each[1]) and each not in BY_KEY]


def test_every_operation_of_the_schema_has_a_rule_for_teams() -> None:
    """A new endpoint is below what teams own, a list that is limited, or named as free."""
    without = {path for _, path in operations() if not OWNED.match(path) and plain(path) not in LISTS.keys() | FREE}
    assert without == set()


def person(name: str, role: str = "operator") -> User:
    user = User.objects.create_user(name)
    if role:
        user.groups.add(Group.objects.get_or_create(name=role)[0])
    return user


def client(user: User) -> APIClient:
    found = APIClient(raise_request_exception=False)
    found.credentials(HTTP_AUTHORIZATION=f"Bearer {AuthToken.objects.create(user=user)[1]}")
    return found


@pytest.fixture
def vision() -> Team:
    """A team that owns a job that runs, a machine and a simulation; another job and machine are everyone's."""
    machine, job = online_agent("m1"), running_job()
    team = team_create(name="vision", actor="root")
    owner_set(row=job, team=team, actor="root")
    owner_set(row=machine, team=team, actor="root")
    online_agent("m2")
    bob = person("bob")
    simulation_submit(scenario="demo", policies=["bsp"], seed=1, user=bob, team=team)
    submitted_job(bob, name="public", labels={"gpu": "none"})
    return team


def ask(found: APIClient, method: str, path: str, team: Team) -> Any:
    job, agent = Job.objects.filter(team=team)[0], Agent.objects.filter(team=team)[0]
    simulation = Simulation.objects.get(team=team)
    numbers = {"jobs": job.pk, "agents": agent.pk, "simulations": simulation.pk, "teams": team.pk}
    match = OWNED.match(path)
    assert match is not None
    path = re.sub(r"\{\w+\}", str(numbers[match[1]]), path, count=1)
    fills = {"rank": "0", "index": "0", "key": "nothere", "name": "load", "username": "ada", "window": "9", "note": "9"}
    path = re.sub(r"\{(\w+)\}", lambda field: fills[field[1]], path)
    return found.generic(method, path, "{}", content_type="application/json")


@pytest.mark.parametrize(("method", "path"), BELOW)
def test_what_a_team_owns_does_not_exist_for_others(method: str, path: str, vision: Team) -> None:
    state = Job.objects.filter(team=vision)[0].state
    for role in ("viewer", "operator"):
        reply = ask(client(person(role, role)), method, path, vision)
        assert refused(reply)["status"] == 404, (role, reply.content)
    assert Job.objects.filter(team=vision)[0].state == state


@pytest.mark.parametrize(("method", "path"), BELOW)
def test_members_read_operators_write_and_admins_of_the_installation_do_both(
    method: str, path: str, vision: Team
) -> None:
    replies = {}
    for role in ("member", "operator", "admin"):
        user = person(f"team-{role}", "viewer")
        member_set(team=vision, user=user, role=role, actor="root")
        replies[role] = ask(client(user), method, path, vision)
    replies["root"] = ask(client(person("root", "admin")), method, path, vision)
    found = {role: reply.status_code for role, reply in replies.items()}
    lowest = "member" if method == "GET" else LOWEST.get((method, path), "operator")
    allowed = ROLES_UPWARDS[ROLES_UPWARDS.index(lowest) :]
    assert [role for role, status in found.items() if status != 403] == allowed, found
    assert all(status < 500 and status != 401 for status in found.values()), found


def test_every_write_with_a_rule_of_its_own_exists() -> None:
    assert set(LOWEST) <= set(BELOW)


@pytest.mark.parametrize("path", sorted(LISTS))
def test_lists_have_only_what_the_user_sees(path: str, vision: Team) -> None:
    """Each list has a row of the team, which a member finds by its mark and others do not."""
    member = person("member", "viewer")
    member_set(team=vision, user=member, role="member", actor="root")
    secret_rows(vision, member)
    pages = {user: client(user).get(path) for user in (member, person("eve", "operator"))}
    assert {page.status_code for page in pages.values()} == {200}
    mark = LISTS[path]
    assert [mark in page.content.decode() for page in pages.values()] == [True, False]


def secret_rows(team: Team, member: User) -> None:
    """Something of the team in each list, with the marks of ``LISTS``."""
    now, job = timezone.now(), Job.objects.get(team=team)
    Job.objects.filter(team=team).update(name="secret-digits")
    Agent.objects.filter(team=team).update(name="secret-machine")
    Process.objects.filter(job=job).update(reason="secret-process")
    Job.objects.filter(pk=submitted_job(member).pk).update(team=team, name="secret-queued")
    alert = Alert.objects.create(
        job=job, rule_name="secret-rule", stage="firing", since=now, seen_at=now, fired_at=now, summary="secret-alert"
    )
    Silence.objects.create(job=job, until=now + timedelta(hours=1), created_by="ann", reason="secret-silence")
    oncall = Target.objects.create(name="oncall", kind="webhook", sealed=b"")
    Delivery.objects.create(alert=alert, target=oncall, notice="firing", message={}, error="secret-error")
    quota_set(team=team, actor="root", slots=8)


@pytest.mark.parametrize(
    "path", ["/", "/jobs/", "/workers/", "/waiting/", "/audit/", "/simulations/", "/alerts/", "/queue/", "/live/"]
)
def test_pages_name_no_job_and_machine_of_another_team(path: str, vision: Team) -> None:
    Job.objects.filter(team=vision).update(name="secret-digits")
    Agent.objects.filter(team=vision).update(name="secret-machine")
    AuditEntry.objects.create(
        actor="ann", action="job-pause", subject="secret-digits", job=Job.objects.get(team=vision)
    )
    eve, insider = person("eve", "operator"), person("ina", "viewer")
    member_set(team=vision, user=insider, role="member", actor="root")
    for user, sees in ((insider, True), (eve, False)):
        browser = Client()
        browser.force_login(user)
        body = browser.get(path).content.decode()
        assert ("secret-" in body) == (sees and path in ("/", "/jobs/", "/workers/", "/audit/", "/live/")), path


def test_a_comparison_refuses_jobs_of_other_teams(vision: Team) -> None:
    eve = client(person("eve"))
    ours, theirs = Job.objects.get(name="public").pk, Job.objects.get(team=vision).pk
    reply = eve.get(f"/api/v1/comparisons/learning?jobs={ours},{theirs}")
    assert (reply.status_code, refused(reply)["errors"][0]["found"]) == (400, str(theirs))


def test_a_blocker_of_another_team_has_no_name(vision: Team) -> None:
    Agent.objects.update(team=None)
    waiting = submitted_job(person("eve"), workers=4, name="large")
    shown = client(User.objects.get(username="eve")).get(f"/api/v1/jobs/{waiting.pk}").json()["waiting"]
    assert [(each["job"], each["name"]) for each in shown["blockers"] if each["relation"] == "holds"] == [
        (Job.objects.get(team=vision).pk, "")
    ]


def test_tags_of_another_teams_jobs_are_not_offered(vision: Team) -> None:
    JobTag.objects.create(job=Job.objects.get(team=vision), name="secret-tag")
    insider, browser = person("ina", "viewer"), Client()
    member_set(team=vision, user=insider, role="member", actor="root")
    for user, sees in ((insider, True), (person("eve", "operator"), False)):
        browser.force_login(user)
        for path in ("/jobs/", "/jobs/parameters/"):
            assert ("secret-tag" in browser.get(path).content.decode()) == sees, path


def test_the_preview_of_a_drain_names_no_job_of_another_team(vision: Team) -> None:
    machine = Agent.objects.get(name="m1")
    owner_set(row=machine, team=None, actor="root")
    Job.objects.filter(team=vision).update(name="secret-digits")
    insider, browser = person("ina", "operator"), Client()
    member_set(team=vision, user=insider, role="member", actor="root")
    for user, sees in ((insider, True), (person("eve", "operator"), False)):
        browser.force_login(user)
        body = browser.get(f"/workers/{machine.pk}/drain/").content.decode()
        assert f"job #{Job.objects.get(team=vision).pk}" in body
        assert ("secret-digits" in body) == sees


def test_a_job_that_cannot_start_names_no_machine_of_another_team(vision: Team) -> None:
    """Opening it, or asking for its labels, would not help."""
    Agent.objects.filter(team=vision).update(scheduling="cordoned", name="secret-machine")
    Agent.objects.filter(team=None).update(state="offline")
    job = submitted_job(person("eve"))
    asks = client(User.objects.get(username="eve"))
    sentence = asks.get(f"/api/v1/jobs/{job.pk}").json()["waiting"]["sentence"]
    assert sentence.endswith("no machine is online: add one with python -m workers join")
    Agent.objects.filter(team=None).update(state="online")
    Agent.objects.filter(team=vision).update(scheduling="open", labels={"gpu": "secret-label"})
    job = submitted_job(User.objects.get(username="eve"), labels={"gpu": "h100"})
    assert "secret" not in asks.get(f"/api/v1/jobs/{job.pk}").json()["waiting"]["sentence"]


@pytest.mark.parametrize("path", ["/simulations/", "/simulations/job/"])
def test_the_form_of_simulations_reports_nothing_of_another_teams_job(path: str, vision: Team) -> None:
    job, insider, browser = Job.objects.get(team=vision), person("ina", "viewer"), Client()
    member_set(team=vision, user=insider, role="member", actor="root")
    for user, sees in ((insider, True), (person("eve", "operator"), False)):
        browser.force_login(user)
        body = browser.get(path, {"job": job.pk}).content.decode()
        assert (f"job {job.pk}: not in this database" in html.unescape(body)) != sees, body


def test_an_admin_of_the_team_deletes_notes_of_others(vision: Team) -> None:
    job, boss, browser = Job.objects.get(team=vision), person("boss", "viewer"), Client()
    note = JobNote.objects.create(job=job, iteration=1, at=timezone.now(), actor="ada", text="mine")
    browser.force_login(boss)
    for role, status in (("operator", 403), ("admin", 302)):
        member_set(team=vision, user=boss, role=role, actor="root")
        path = f"/jobs/{job.pk}/notes/{note.pk}/delete/"
        assert (path in browser.get(f"/jobs/{job.pk}/").content.decode()) == (status == 302)
        assert browser.post(path).status_code == status


def test_a_token_with_a_lower_role_has_no_more_in_its_team(vision: Team) -> None:
    user = person("ina", "operator")
    member_set(team=vision, user=user, role="admin", actor="root")
    row = client(user).post("/api/v1/tokens", {"name": "t", "role": "viewer"}, format="json").json()
    limited = APIClient(raise_request_exception=False)
    limited.credentials(HTTP_AUTHORIZATION=f"Bearer {row['token']}")
    job = Job.objects.get(team=vision)
    assert limited.get(f"/api/v1/jobs/{job.pk}").status_code == 200
    assert limited.post(f"/api/v1/jobs/{job.pk}/actions/stop").status_code == 403


def test_a_job_belongs_to_the_first_team_of_who_submits_it_or_to_the_one_named(vision: Team) -> None:
    user = person("ina", "viewer")
    member_set(team=vision, user=user, role="operator", actor="root")
    speech = team_create(name="speech", actor="root")
    member_set(team=speech, user=user, role="member", actor="root")
    mine = client(user)
    assert mine.post("/api/v1/jobs", SPEC, format="json").json()["team"] == "vision"
    told = refused(mine.post("/api/v1/jobs?team=speech", SPEC, format="json"))
    assert (told["status"], told["detail"]) == (
        403,
        "submitting for team 'speech' requires its role operator; yours is member",
    )
    told = refused(mine.post("/api/v1/jobs?team=nothere", SPEC, format="json"))
    assert told["detail"] == (
        "user 'ina' is in no team 'nothere' (teams: vision, speech): its admins add members, on its page or by "
        "python manage.py teams member nothere ina --role operator"
    )
    with pytest.raises(TeamRefused, match="requires the role operator"):
        team_for(person("vic", "viewer"), None)


def test_without_teams_everything_is_as_before() -> None:
    job = submitted_job(person("ann"))
    assert client(person("vic", "viewer")).get(f"/api/v1/jobs/{job.pk}").json()["team"] is None
    assert client(User.objects.get(username="vic")).get("/api/v1/jobs").json()["count"] == 1


def test_a_team_that_owns_something_cannot_be_deleted(vision: Team) -> None:
    with pytest.raises(TeamRefused, match="owns 1 job, 1 machine, 1 simulation, expected none: give them to another"):
        team_delete(team=vision, actor="root")


def test_admins_of_a_team_manage_its_members_and_not_its_weight(vision: Team) -> None:
    boss = person("boss", "viewer")
    member_set(team=vision, user=boss, role="admin", actor="root")
    person("new", "viewer")
    manages = client(boss)
    path = f"/api/v1/teams/{vision.pk}"
    assert manages.put(f"{path}/members/new", {"role": "operator"}, format="json").json()["role"] == "operator"
    assert manages.patch(path, {"weight": 9}, format="json").status_code == 403
    assert manages.delete(f"{path}/members/new").status_code == 204
    assert client(person("root", "admin")).patch(path, {"weight": 9}, format="json").json()["weight"] == 9.0


def test_stored_bytes_and_simulations_have_quotas_and_teams_too(vision: Team) -> None:
    ina = person("ina", "operator")
    member_set(team=vision, user=ina, role="operator", actor="root")
    asks = client(ina)
    quota_set(team=vision, actor="root", stored_bytes=100)
    Job.objects.filter(team=vision).update(model_bytes=101)
    told = refused(asks.post("/api/v1/jobs", SPEC, format="json"))
    assert (told["field"], told["detail"][:34]) == ("quota.stored_bytes", "the quota of team vision is 100 B ")
    quota_set(actor="root", simulations=1)
    simulation_submit(scenario="demo", policies=["bsp"], seed=1, user=ina)
    told = refused(asks.post("/api/v1/simulations", {"scenario": "demo"}, format="json"))
    assert (told["status"], told["field"]) == (409, "quota.simulations")


def test_quotas_are_set_by_admins_and_read_by_their_subjects(vision: Team) -> None:
    ina = person("ina", "viewer")
    member_set(team=vision, user=ina, role="member", actor="root")
    admin = client(person("root", "admin"))
    assert admin.put("/api/v1/quotas/teams/vision", {"slots": 8}, format="json").json()["limits"]["slots"] == 8
    assert admin.put("/api/v1/quotas/users/ina", {"jobs": 3}, format="json").status_code == 200
    own = client(ina).get("/api/v1/quotas").json()
    assert [(each["subject"], each["limits"]["slots"], each["limits"]["jobs"]) for each in own] == [
        ("user ina", None, 3),
        ("team vision", 8, None),
    ]
    assert own[1]["used"]["jobs"] == 1
    assert Quota.objects.count() == 2


def order(found: APIClient) -> list[int]:
    return [row["job"] for row in found.get("/api/v1/queue").json()]


def test_an_operator_changes_the_order_of_the_queue() -> None:
    ann = person("ann")
    asks = client(ann)
    one, two, three = (submitted_job(ann, name=name).pk for name in ("one", "two", "three"))
    urgent = submitted_job(ann, name="urgent", priority=5).pk
    assert order(asks) == [urgent, one, two, three]
    assert asks.post(f"/api/v1/jobs/{three}/actions/move", {"before": one}, format="json").status_code == 200
    assert order(asks) == [urgent, three, one, two]
    assert asks.post(f"/api/v1/jobs/{two}/actions/move", {"before": urgent}, format="json").json()["priority"] == 5
    assert order(asks) == [two, urgent, three, one]
    asks.post(f"/api/v1/jobs/{two}/actions/move", {"before": None}, format="json")
    later = submitted_job(ann, name="later").pk
    assert order(asks) == [urgent, three, one, two, later]
    entry = AuditEntry.objects.filter(action="job-move").latest("pk")
    assert entry.detail == {"before": None, "from": 5, "to": 0}


def test_only_queued_jobs_are_moved() -> None:
    ann = person("ann")
    one, two = submitted_job(ann), submitted_job(ann)
    Job.objects.filter(pk=one.pk).update(state=JobState.RUNNING)
    told = refused(client(ann).post(f"/api/v1/jobs/{two.pk}/actions/move", {"before": one.pk}, format="json"))
    assert (told["status"], "only queued jobs have an order" in told["detail"]) == (409, True)


def test_jobs_of_teams_alternate_in_the_queue(vision: Team) -> None:
    speech, ann = team_create(name="speech", weight=2.0, actor="root"), person("ada", "admin")
    Job.objects.all().update(state=JobState.RUNNING)
    jobs = {name: [submitted_job(ann, name=name) for _ in range(3)] for name in ("vision", "speech")}
    for job in jobs["vision"]:
        owner_set(row=job, team=vision, actor="root")
    for job in jobs["speech"]:
        owner_set(row=job, team=speech, actor="root")
    names = [row["name"] for row in client(ann).get("/api/v1/queue").json()]
    assert names == ["vision", "speech", "speech", "vision", "speech", "vision"]


def test_processes_of_other_teams_are_in_no_list(vision: Team) -> None:
    assert Process.objects.count() == 3
    eve: Callable[[str], Any] = client(person("eve")).get
    assert [eve(path).json()["count"] for path in ("/api/v1/workers", "/api/v1/servers")] == [0, 0]


def said(*arguments: str) -> str:
    output = io.StringIO()
    call_command(*arguments, stdout=output)
    return output.getvalue().strip()


def test_the_commands_make_teams_give_them_what_they_own_and_set_quotas() -> None:
    person("ada"), online_agent("m1")
    job = submitted_job(User.objects.get(username="ada"))
    said("teams", "create", "vision", "--weight", "2")
    said("teams", "member", "vision", "ada", "--role", "operator")
    told = said("teams", "own", "vision", "--machine", "m1", "--job", str(job.pk))
    assert told == "vision: weight 2; ada (operator); 1 job; m1"
    ran = Simulation.objects.create(scenario="demo", policies=["bsp"], seed=1)
    Job.objects.create(name="demo bsp", spec={}, submitted_by=job.submitted_by, simulation=ran, team=job.team)
    assert said("teams", "release", "vision", "--machine", "m1").endswith("1 job; no machines"), (
        "runs of simulations are none"
    )
    with pytest.raises(CommandError, match="owns 1 job, expected none"):
        said("teams", "delete", "vision")
    default = "default: jobs 1,000, simulations 20, stored_bytes 100 GB"
    assert (
        said("quotas", "set", "team", "vision", "--jobs", "3", "--slots", "8")
        == f"{default}\nteam vision: slots 0 of 8, jobs 1 of 3"
    )
    assert said("quotas", "set", "team", "vision", "--slots", "none") == f"{default}\nteam vision: jobs 1 of 3"
    with pytest.raises(CommandError, match="user 'bob' does not exist"):
        said("quotas", "set", "user", "bob", "--jobs", "1")


@pytest.mark.parametrize("sought", ["secret", "digits"])
def test_a_search_finds_nothing_of_other_teams(sought: str, vision: Team) -> None:
    job = Job.objects.get(team=vision)
    Agent.objects.filter(team=vision).update(name="secret-machine")
    JobNote.objects.create(job=job, text="secret plan", iteration=1, actor="ann", at=timezone.now())
    eve, ina = person("eve"), person("ina", "viewer")
    member_set(team=vision, user=ina, role="member", actor="root")
    found = {}
    for user in (eve, ina):
        browser = Client()
        browser.force_login(user)
        found[user.username] = browser.get(f"/search/?q={sought}").content.decode()
    assert (f"/jobs/{job.pk}/" in found["eve"], "secret-machine" in found["eve"]) == (False, False)
    assert f"/jobs/{job.pk}/" in found["ina"]


@pytest.mark.parametrize(("text", "count"), [("10 GB", 10**10), ("1.5 GiB", 3 * 2**29), ("1000", 1000), (1000, 1000)])
def test_a_limit_of_stored_bytes_has_a_unit(text: str | int, count: int) -> None:
    root = client(person("root", "admin"))
    reply = root.put("/api/v1/quotas/default", {"stored_bytes": text}, format="json")
    assert (reply.status_code, default_quota().stored_bytes) == (200, count)
    told = refused(root.put("/api/v1/quotas/default", {"stored_bytes": "ten GB"}, format="json"))
    assert (told["status"], told["field"], told["found"]) == (400, "stored_bytes", "ten GB")
    assert told["expected"].endswith("such as 10 GB or 1.5 TiB (found 'ten GB')")
