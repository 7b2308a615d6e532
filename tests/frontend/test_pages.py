"""Pages by Django's client: who sees them, what stands on them, and what they say when there is nothing."""

import html
import re
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.staticfiles import finders
from django.template.loader import get_template
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from controlplane.api.enrolment import invite
from controlplane.core.states import JobState
from controlplane.fleet.models import Agent, EnrolmentToken
from controlplane.fleet.services import token_revoke
from controlplane.jobs.login_links import issue_login_link
from controlplane.jobs.models import AuditEntry, Job
from controlplane.people.quotas import quota_set
from controlplane.policies.registry import catalogue
from frontend.presets import PRESETS, offered
from frontend.queries.job import KINDS
from frontend.tabs import TABS
from tests.frontend import factories
from tests.frontend.conftest import signed_in
from tests.telemetry.reports import change_reports

pytestmark = pytest.mark.django_db

FRONTEND = Path(__file__).parents[2] / "frontend"
PAGES = [
    *("/", "/live/", "/jobs/", "/workers/", "/workers/live/", "/compare/", "/audit/", "/alerts/"),
    *("/alerts/live/", "/system/", "/system/live/", "/waiting/", "/simulations/"),
]


def text_of(client: Client, path: str, status: int = 200) -> str:
    """The words of a page, without its tags."""
    response = client.get(path)
    assert response.status_code == status
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", response.content.decode())).split())


@pytest.mark.parametrize("path", [*PAGES, "/jobs/new/", "/jobs/1/", "/jobs/1/live/"])
def test_no_one_sees_a_page_without_signing_in(client: Client, path: str) -> None:
    response = client.get(path)
    assert (response.status_code, response.headers["Location"]) == (302, f"/login/?next={path}")


@pytest.mark.parametrize("path", PAGES)
def test_a_user_without_a_role_sees_what_is_missing(path: str) -> None:
    assert "nobody is not viewer: ask an admin" in text_of(signed_in(""), path, 403)


@pytest.mark.parametrize("path", PAGES)
def test_a_viewer_sees_every_page(viewer: Client, path: str) -> None:
    factories.demo_job()
    assert viewer.get(path).status_code == 200


def test_submitting_takes_an_operator(viewer: Client, operator: Client) -> None:
    assert (viewer.get("/jobs/new/").status_code, operator.get("/jobs/new/").status_code) == (403, 200)


def test_a_viewer_is_offered_nothing_that_is_refused(viewer: Client, operator: Client) -> None:
    job = factories.demo_job()
    path = f"/jobs/{job.pk}/"
    assert "Stop job" not in text_of(viewer, path)
    assert f"Stop job #{job.pk}, digits? Its 4 workers and 2 servers stop immediately" in text_of(operator, path)


def test_a_job_page_reports_who_is_slow_who_waits_and_what_shares_became(viewer: Client) -> None:
    page = text_of(viewer, f"/jobs/{factories.demo_job().pk}/")
    assert "Balanced: all workers finish together" in page
    assert "waiting changed from 48% to 1% and the iteration time from 264 to 102 ms: 2.6 times as fast" in page
    assert "w3 computes 3.9 times as long per sample as the median worker" in page
    assert "64 \N{RIGHTWARDS ARROW} 23" in page
    assert "91.2% target 95%" in page


@pytest.mark.parametrize("name", TABS)
def test_the_live_part_of_a_tab_holds_all_that_moves(viewer: Client, name: str) -> None:
    job = factories.demo_job()
    body = viewer.get(f"/jobs/{job.pk}/live/?tab={name}").content.decode()
    parts = re.findall(r'<section id="([\w-]+)"[^>]* hx-swap-oob="true"', body)
    assert parts == ["job-header", "job-facts", "job-requests", *(f"job-{part}" for part in TABS[name].parts)]


@pytest.mark.parametrize("name", TABS)
def test_live_parts_are_what_the_tab_shows(viewer: Client, name: str) -> None:
    job = factories.demo_job()
    page, live = (viewer.get(f"/jobs/{job.pk}/{part}?tab={name}").content.decode() for part in ("", "live/"))
    parts = live.replace(' hx-swap-oob="true"', "").split("</section>")[1:-1]
    assert [part.strip() in page for part in parts] == [True] * (2 + len(TABS[name].parts))


def test_a_tab_of_a_job_without_data_opens_too(viewer: Client) -> None:
    job = Job.objects.create(name="digits", spec=factories.spec())
    assert [viewer.get(f"/jobs/{job.pk}/?tab={name}").status_code for name in TABS] == [200] * len(TABS)


@pytest.mark.parametrize(("workers", "first"), [(64, "batch-size"), (65, "heat-map")])
def test_many_workers_are_shown_as_a_map_first(viewer: Client, workers: int, first: str) -> None:
    job = Job.objects.create(name="digits", spec=factories.spec(workers=workers))
    figures = re.findall(r'<plotly-figure id="figure-([\w-]+)"', viewer.get(f"/jobs/{job.pk}/").content.decode())
    assert (figures[0], figures[-1]) == (first, "convergence")


def test_a_job_that_waits_reports_for_what(viewer: Client) -> None:
    job = Job.objects.create(name="digits", spec=factories.spec())
    page = text_of(viewer, f"/jobs/{job.pk}/")
    assert "Not started: cannot be scheduled: needs 4 worker slots and 2 server slots, and no machine is" in page
    assert "No iteration reported yet" in page


@pytest.mark.parametrize("address", ["/", "/jobs/"])
def test_lists_report_why_a_job_does_not_start_and_link_what_is_in_its_way(viewer: Client, address: str) -> None:
    factories.make_agents(2, slots=2)
    first = Job.objects.create(name="first", spec=factories.spec())
    second = Job.objects.create(name="second", spec=factories.spec(), priority=-3)
    page = viewer.get(address).content.decode()
    assert f'; 1 job ahead of it: <a href="/jobs/{first.pk}/">job {first.pk} (first)</a> of priority 0' in page
    assert "priority -3" in page
    assert (
        f'<a href="/jobs/{first.pk}/">job {first.pk} (first)</a>' in viewer.get(f"/jobs/{second.pk}/").content.decode()
    )


def test_only_operators_are_offered_another_priority(viewer: Client, operator: Client) -> None:
    job = Job.objects.create(name="digits", spec=factories.spec(), priority=5)
    assert b"job-priority" not in viewer.get(f"/jobs/{job.pk}/").content
    assert b"<span>Priority 5</span>" in operator.get(f"/jobs/{job.pk}/").content
    Job.objects.update(state="running")
    assert b"job-priority" not in operator.get(f"/jobs/{job.pk}/").content


def test_a_job_that_failed_reports_why(viewer: Client) -> None:
    job = Job.objects.create(
        name="digits", spec=factories.spec(), state=JobState.FAILED, reason="w2 ended with status 1"
    )
    assert "Failed: w2 ended with status 1" in text_of(viewer, f"/jobs/{job.pk}/")


def test_a_failed_job_is_not_called_balanced(viewer: Client) -> None:
    job = factories.demo_job()
    Job.objects.update(state=JobState.FAILED)
    change_reports(lambda row: None if row.rank >= 2 and row.iteration >= 50 else {})
    page = text_of(viewer, f"/jobs/{job.pk}/")
    assert "The job failed. Its last iterations are shown. Only 2 of 4 workers took part in these iterations." in page
    for praise in ("Balanced", "times as fast", "those that wait least"):
        assert praise not in page


def test_slots_of_a_machine_that_is_offline_are_not_free(viewer: Client) -> None:
    factories.make_agents(1)
    assert [("free" in text_of(viewer, path)) for path in ("/", "/workers/")] == [True, True]
    Agent.objects.update(state=Agent.State.OFFLINE)
    for path in ("/", "/workers/"):
        assert "offline · 1,000 samples/s" in text_of(viewer, path)
        assert "free" not in text_of(viewer, path)


def test_the_tile_of_the_last_decision_leads_to_it(viewer: Client) -> None:
    assert "Last decision none yet" in text_of(viewer, "/")
    job = factories.demo_job()
    page = text_of(viewer, "/live/")
    assert f"Last decision placement 2: 3 blocks digits #{job.pk} ·" in page
    link = re.search(r'id="last-decision" href="([^"#]+)#([^"]+)"', viewer.get("/").content.decode())
    assert link is not None
    there = viewer.get(html.unescape(link[1])).content.decode()
    assert re.findall(r'<tr id="(decision-[\d-]+)"', there)[0] == link[2]


def test_the_overview_leads_to_all_decisions_of_the_newest_job(viewer: Client) -> None:
    factories.make_job()
    newest = factories.make_job().pk
    body = viewer.get("/").content.decode()
    assert f'<a href="/jobs/{newest}/?tab=decisions&amp;decisions=all">All decisions of job #{newest}</a>' in body


def test_an_empty_control_plane_reports_what_to_do_next(admin: Client) -> None:
    overview, jobs, machines = (text_of(admin, path) for path in ("/", "/jobs/", "/workers/"))
    assert "No machines yet." in overview
    assert "Add a machine" in overview
    assert "Submit the first job" in overview
    assert "No jobs yet." in jobs
    assert "Create an enrolment token" in machines


def test_a_search_without_a_match_reports_it(viewer: Client) -> None:
    factories.make_job()
    assert "No matching jobs. No job name contains \N{LEFT DOUBLE QUOTATION MARK}vision" in text_of(
        viewer, "/jobs/?q=vision"
    )
    assert "No matching jobs. No job is queued now." in text_of(viewer, "/jobs/?state=queued")


def test_a_script_in_a_name_stays_text(viewer: Client) -> None:
    job = Job.objects.create(name="<script>alert(1)</script>", spec=factories.spec() | {"name": "</script><script>x"})
    for path in ("/", "/jobs/", f"/jobs/{job.pk}/"):
        body = viewer.get(path).content.decode()
        assert "<script>alert" not in body
        assert "<script>x" not in body


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            "tab=decisions&decisions=best",
            f"decisions: found 'best', expected one of {', '.join(KINDS)}",
        ),
        ("tab=secrets", f"tab: found 'secrets', expected one of {', '.join(TABS)}"),
        ("tab=decisions&before=x", "before: found 'x', expected the ID of a decision"),
    ],
)
def test_a_query_that_cannot_be_followed_is_refused(viewer: Client, query: str, message: str) -> None:
    assert text_of(viewer, f"/jobs/{factories.make_job().pk}/?{query}", 400) == message


@pytest.mark.parametrize("address", ["/?state={}", "/workers/?sort={}", "/jobs/?state={}", "/compare/?jobs={}"])
def test_what_a_refusal_repeats_of_an_address_is_never_run(viewer: Client, address: str) -> None:
    refusal = viewer.get(address.format("<script src=//example.org></script>"))
    assert (refusal.status_code, refusal["Content-Type"]) == (400, "text/plain; charset=utf-8")
    assert "<script" in refusal.content.decode()


@pytest.mark.parametrize("address", ["/jobs/?q=", "/audit/?actor=", "/?label="])
def test_text_that_no_database_takes_is_refused(viewer: Client, address: str) -> None:
    field = address.partition("?")[2].rstrip("=")
    said = text_of(viewer, f"{address}a%00b", 400)
    assert said == f"{field}: found 'a\\x00b', expected text without NUL characters"


def test_an_unknown_state_is_refused(viewer: Client) -> None:
    assert (
        text_of(viewer, "/jobs/?state=lost", 400)
        == "state: found 'lost', expected one of running, queued, paused, over"
    )


@pytest.mark.parametrize("path", ["/jobs/99/", "/jobs/99/live/", "/nowhere/"])
def test_what_does_not_exist_is_not_found(viewer: Client, path: str) -> None:
    page = text_of(viewer, path, 404)
    assert "Page not found This page does not exist or was deleted." in page
    assert "Resolver404" not in page
    assert "given query" not in page


def test_a_page_of_jobs_is_one_of_several(viewer: Client) -> None:
    Job.objects.bulk_create(Job(name=f"job-{number}", spec=factories.spec()) for number in range(30))
    first, second = text_of(viewer, "/jobs/"), text_of(viewer, "/jobs/?page=2")
    assert "Page 1 of 2 \N{MIDDLE DOT} 30 jobs" in first
    assert ("job-29" in first, "job-29" in second, "job-4 " in second) == (True, False, True)


def test_only_an_admin_makes_enrolment_tokens(admin: Client, operator: Client) -> None:
    assert operator.post("/workers/enrolment/").status_code == 403
    page = html.unescape(admin.post("/workers/enrolment/").content.decode())
    assert re.search(r"python -m workers join http://127.0.0.1:8000 - --slots 1 <<< '[\w-]{40,}'", page)
    assert EnrolmentToken.objects.count() == 1
    assert AuditEntry.objects.get().action == "agent-invite"


def test_only_an_admin_sees_the_tokens_that_are_valid(admin: Client, operator: Client) -> None:
    made = [invite(user=None, labels={"pool": f"p{number}"}, uses=number) for number in (1, 8, 64)]
    EnrolmentToken.objects.filter(pk=made[0].id).update(used=1)
    EnrolmentToken.objects.filter(pk=made[1].id).update(expires_at=timezone.now())
    EnrolmentToken.objects.filter(pk=made[2].id).update(used=64)  # its machines may join again
    for path in ("/workers/", "/workers/live/"):
        body = admin.get(path).content.decode()
        assert [f"pool=p{number}" in body for number in (1, 8, 64)] == [False, False, True]
        assert "pool=p64" not in operator.get(path).content.decode()
    token_revoke(made[2].id)
    assert "pool=p64" not in admin.get("/workers/").content.decode()


def test_a_job_can_be_duplicated(operator: Client) -> None:
    job = factories.make_job()
    body = operator.get(f"/jobs/new/?copy={job.pk}").content.decode()
    assert "The duplicated job" in body
    assert operator.get("/jobs/new/?copy=x").status_code == 404


@pytest.mark.parametrize(
    ("more", "warned"),
    [({}, False), ({"elastic": {"restarts": 0}}, True)],
)
def test_a_job_that_would_end_with_a_server_reports_it(viewer: Client, more: dict[str, Any], warned: bool) -> None:
    job = factories.make_job(spec=factories.spec(**more))
    factories.make_processes(job, factories.make_agents(4))
    page = text_of(viewer, f"/jobs/{job.pk}/?tab=placement")
    assert ("does not restart servers: if one is lost, the job fails" in page) == warned


def test_every_preset_is_a_spec_that_is_accepted() -> None:
    from controlplane.jobs.validation import validated_spec

    assert [validated_spec(document).global_batch for document in PRESETS.values()] == [256] * len(PRESETS)


def test_the_form_offers_every_policy_with_its_ranges() -> None:
    found = offered()
    registered = {(entry.question, entry.name) for entry in catalogue()}
    assert {(question, name) for question, names in found["policies"].items() for name in names} == registered
    alpha = found["policies"]["prediction"]["ema"]["schema"]["properties"]["alpha"]
    assert (alpha["exclusiveMinimum"], alpha["maximum"], alpha["default"]) == (0.0, 1.0, 0.2)
    assert found["workloads"]["cnn"]["datasets"][0] == "cifar-10"
    assert set(found["workloads"]["cnn"]["datasets"]) <= set(found["datasets"])
    assert "adam" in found["optimizers"]


def test_every_choice_of_the_form_is_accepted() -> None:
    from controlplane.jobs.validation import validated_spec

    for name in offered()["policies"]["batching"]:
        assert validated_spec(factories.spec(synchronization={"batching": {"name": name}, "barrier": {"name": "bsp"}}))


def test_the_form_warns_of_what_cannot_start(operator: Client, viewer: Client) -> None:
    def look(client: Client, document: object) -> dict[str, str]:
        return client.post("/jobs/new/look/", document, content_type="application/json").json()

    assert look(operator, factories.spec())["outcome"] == "never"
    assert look(operator, {"workers": "many"}) == {"outcome": "invalid", "finding": ""}
    for text in ("no JSON", "[" * 100_000):
        assert operator.post("/jobs/new/look/", text, content_type="application/json").json()["outcome"] == "invalid"
    factories.make_agents(4)
    assert look(operator, factories.spec())["outcome"] == "starts"
    quota_set(actor="root", jobs=0)
    refused = look(operator, factories.spec())
    assert (refused["outcome"], refused["finding"][:40]) == ("refused", "the quota of user operator is 0 unfinish")
    assert viewer.post("/jobs/new/look/", {}, content_type="application/json").status_code == 403


def test_signing_in_and_out(client: Client) -> None:
    User.objects.create_user("ada", password="pace-line-1", is_superuser=True)
    refused = client.post("/login/", {"username": "ada", "password": "wrong"})
    assert "Incorrect user name or password" in refused.content.decode()
    assert client.post("/login/", {"username": "ada", "password": "pace-line-1"}).headers["Location"] == "/"
    assert client.get("/").status_code == 200
    client.post("/logout/")
    assert client.get("/").status_code == 302


def test_a_login_link_signs_in_once(client: Client) -> None:
    path = issue_login_link(User.objects.create_user("ada", is_superuser=True))
    assert client.get(path).headers["Location"] == "/"
    assert client.get("/").status_code == 200
    assert "This sign-in link is not valid" in text_of(Client(), path, 403)


def test_a_login_link_works_on_this_machine_only(client: Client) -> None:
    path = issue_login_link(User.objects.create_user("ada", is_superuser=True))
    response = client.get(path, REMOTE_ADDR="192.0.2.7")
    assert response.status_code == 403
    assert "only in a browser on the machine where they were created" in response.content.decode()
    assert client.get(path).status_code == 302


def test_plotly_comes_from_its_wheel() -> None:
    found = finders.find("vendor/plotly.min.js")
    assert isinstance(found, str)
    assert Path(found).parts[-3:] == ("plotly", "package_data", "plotly.min.js")
    assert finders.find("vendor/other.js") is None


def test_nothing_is_fetched_from_elsewhere() -> None:
    """No template, script or style sheet names another host."""
    every = [path for ending in ("html", "js", "css") for path in FRONTEND.rglob(f"*.{ending}")]
    names = [path for path in every if path.parent.name != "vendor"]  # not ours, and forbidden to by the page's policy
    found = {str(name): re.findall(r"https?://(?!www\.w3\.org)[\w.]+", name.read_text()) for name in names}
    assert {name: hosts for name, hosts in found.items() if hosts} == {}


def test_every_template_compiles() -> None:
    root = FRONTEND / "templates"
    for path in root.rglob("*.html"):
        get_template(str(path.relative_to(root)))


def test_addresses_are_as_promised() -> None:
    assert [reverse("overview"), reverse("jobs"), reverse("submit"), reverse("machines"), reverse("job", args=[7])] == [
        "/",
        "/jobs/",
        "/jobs/new/",
        "/workers/",
        "/jobs/7/",
    ]


def test_a_job_without_servers_reports_it_and_shows_what_its_machines_are_made_to_be(viewer: Client) -> None:
    job = factories.make_job(spec=factories.spec(communication="all-reduce", servers=0))
    factories.make_processes(job, factories.make_agents(4))
    job.processes.update(emulate={"slower": 3.0, "competitor": {"takes": 0.25}})
    assert "4 workers, no servers (all-reduce)" in text_of(viewer, f"/jobs/{job.pk}/")
    told = "emulated: 3 times slower, a competing process that takes 25%"
    assert told in text_of(viewer, f"/jobs/{job.pk}/?tab=processes")


@pytest.mark.parametrize(("state", "button"), [("running", "pause"), ("paused", "resume")])
def test_who_may_operate_can_pause_a_running_job_and_resume_a_paused_one(
    operator: Client, state: str, button: str
) -> None:
    job = factories.make_job(state=state)
    page = operator.get(f"/jobs/{job.pk}/").content.decode()
    offered = {name for name in ("pause", "resume") if f'data-post="/api/v1/jobs/{job.pk}/actions/{name}"' in page}
    assert offered == {button}
