"""Pictures of every page, full, empty and failed, in both themes and two widths: ``make screenshots``.

Not a test: pytest collects it only where it is named. The pictures lie under ``var/screenshots``. A page is loaded once
for both themes, as by someone whose system turns dark at night. Style sheets must stay as they are meanwhile.
"""

import gc
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import OperationalError
from django.utils import timezone
from playwright.sync_api import Page, Route

from controlplane.core.states import JobState
from controlplane.fleet.models import Agent
from controlplane.jobs.models import Job
from controlplane.jobs.services import audit
from controlplane.jobs.tokens import token_issue
from controlplane.people.quotas import quota_set
from controlplane.people.teams import member_set, owner_set, team_create
from controlplane.people.tokens import token_create
from controlplane.protocol.spec import parse_spec, spec_document
from controlplane.runtime import log
from controlplane.runtime.health import sample
from controlplane.runtime.models import Forecast
from controlplane.runtime.redis import shared
from controlplane.telemetry.models import Cursor, Simulation
from controlplane.telemetry.simulations import simulation_run, simulation_submit
from frontend.models import JobTag, SavedView
from frontend.tabs import TABS
from tests.browser.conftest import NARROW, WIDE, Look
from tests.frontend import factories
from tests.frontend.alert_rows import alert_rows
from tests.frontend.test_autopilot import judged, measured
from tests.support.oidc import running_provider
from tests.telemetry.reports import change_reports

pytestmark = [
    pytest.mark.browser,
    # A request that a page breaks off when it is left takes its body's file with it, whenever that is collected.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.parametrize("width", [WIDE, NARROW]),
]
THEMES = ("light", "dark")
FOLDER = Path(__file__).parents[2] / "var" / "screenshots"
HEIGHT = 900
SETTLE_MS = 400
"""For fonts and the last frame of a chart."""

PATIENCE_MS = 180_000
"""A busy machine makes pictures, too."""

DRAWN = """theme => [...document.querySelectorAll("plotly-figure")].every(
  each => !each.visible || (!each.busy && !each.dirty && each.etag.includes(`theme=${theme}`)))"""
"""Whether every chart in the window is drawn in that theme."""

ATTACHED = spec_document(parse_spec({"name": "waits", "launch": "attached"}))

Shoot = Callable[[str, str], None]


def open_whole(page: Page, width: int, path: str) -> None:
    """The page with its charts drawn: those out of view are not, so the window is made as tall."""
    page.set_viewport_size({"width": width, "height": HEIGHT})
    page.goto(path)
    page.wait_for_load_state("networkidle")
    page.set_viewport_size({"width": width, "height": page.evaluate("document.documentElement.scrollHeight") + HEIGHT})
    for figure in page.locator("plotly-figure").all():
        figure.locator(".main-svg, .figure-empty:not([hidden])").first.wait_for()
    page.set_viewport_size(
        {"width": width, "height": page.evaluate("document.querySelector('main').offsetHeight") + 120}
    )


def keep(page: Page, name: str, *, whole: bool = False, drawn: bool = True) -> None:
    """A picture in each theme of the page, or only of what is in the window: a dialog is in its middle."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    width = page.viewport_size["width"] if page.viewport_size else 0
    now = page.evaluate("document.documentElement.dataset.theme")
    for theme in sorted(THEMES, key=lambda each: each != now):
        page.emulate_media(color_scheme=theme)
        if drawn:
            page.wait_for_function(DRAWN, arg=theme)
        page.wait_for_timeout(SETTLE_MS)
        page.screenshot(path=FOLDER / f"{name}-{theme}-{width}.png", full_page=whole)


def full_job(user: User) -> Job:
    """The demo's job with everything on it: its log, two policies changed, played otherwise, predictors scored."""
    job = factories.played_job(user=user)
    log.start_log(job.pk, parse_spec(job.spec))
    Cursor.objects.filter(job=job).update(position=f"{int(timezone.now().timestamp() * 1000)}-0")
    changed = {"choices": {"barrier": {"name": "ssp", "parameters": {"staleness": 2}}}, "first_iteration": 30}
    row = factories.make_decision(job, 50, "change-policies", changed, reason="requested by ada", iteration=30)
    row.at = factories.START + timedelta(seconds=5)
    row.save()
    return job


@pytest.fixture(autouse=True)
def _lately(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Jobs began a moment ago; and what a test leaves unclosed is collected with it, not at the end of all."""
    monkeypatch.setattr(factories, "START", timezone.now() - timedelta(seconds=30))
    yield
    gc.collect()


@pytest.fixture
def page(site: str, look: Look, ada: User, width: int) -> Page:
    page = look(site, user=ada, theme=THEMES[0], width=width)
    page.set_default_timeout(PATIENCE_MS)
    return page


@pytest.fixture
def take(page: Page, width: int) -> Shoot:
    """Pictures the whole page at a path under a name."""

    def shoot(path: str, name: str) -> None:
        open_whole(page, width, path)
        keep(page, name, whole=True)

    return shoot


def test_nothing_is_there_yet(take: Shoot) -> None:
    names = {"": "overview", "jobs": "jobs", "workers": "machines", "simulations": "simulations", "waiting": "waiting"}
    for path, name in names.items():
        take(f"/{path}/".replace("//", "/"), f"{name}-empty")
    take("/audit/", "audit-empty")
    take("/alerts/", "alerts-empty")
    take("/system/", "system-failed")


def test_every_page(take: Shoot, ada: User) -> None:
    full = full_job(ada)
    for path, name in (("/", "overview"), ("/jobs/", "jobs"), ("/workers/", "machines"), ("/waiting/", "waiting")):
        take(path, name)
    even = factories.make_job(user=ada, name="even", spec=factories.spec(policy="uniform"))
    factories.make_reports(even, [factories.Pace(shares=factories.EVEN)] * 60)
    factories.make_scores(even, every=20, until=60, seconds=0.26)
    audit(actor="ada", action="job-submit", subject=f"job {full.pk}", detail={"name": "digits"})
    take("/audit/", "audit")
    take("/jobs/new/", "submit")
    take("/glossary/", "glossary")
    take("/compare/", "compare-pick")
    take(f"/compare/?jobs={even.pk},{full.pk}", "compare")
    for _ in range(5):
        sample(shared())
    take("/system/", "system")


def take_tabs(take: Shoot, job: Job, kind: str) -> None:
    for tab in TABS:
        take(f"/jobs/{job.pk}/?tab={tab}", f"job-{tab}-{kind}")


def test_every_tab_of_a_job_that_waits(take: Shoot, ada: User) -> None:
    take_tabs(take, Job.objects.create(name="waits", spec=factories.spec(workers=8), submitted_by=ada), "empty")


def test_a_queue(take: Shoot, ada: User) -> None:
    """One job holds slots, one waits for them, one is behind it, and one could never start; a large machine."""
    agents = factories.make_agents(3, slots=2)
    factories.make_agents(1, slots=200, first=3)
    Agent.objects.filter(name="machine-3").update(server_slots=0, labels={"class": "large"})
    running = factories.make_job(user=ada, name="running")
    factories.make_processes(running, agents, shares=(64, 64))
    large = Job.objects.create(name="large", spec=factories.spec(workers=206, servers=1), submitted_by=ada, priority=10)
    Job.objects.filter(pk=large.pk).update(created_at=timezone.now() - timedelta(minutes=7))
    behind = Job.objects.create(name="behind", spec=factories.spec(workers=2, servers=1), submitted_by=ada)
    Job.objects.create(name="never", spec=factories.spec(labels={"gpu": "a100"}), submitted_by=ada)
    for path, name in (("/", "overview"), ("/jobs/", "jobs"), (f"/jobs/{behind.pk}/", "job")):
        take(path, f"{name}-queue")


def test_every_tab_of_a_job_that_failed(take: Shoot, ada: User) -> None:
    job = factories.make_job(user=ada, state=JobState.FAILED, reason="w2 ended with status 1; no checkpoint")
    factories.make_reports(job, [factories.Pace(shares=factories.EVEN)] * 8)
    Forecast.objects.create(job=job, reason="8 iterations are too few to learn from", made_at=timezone.now())
    take_tabs(take, job, "failed")


def test_every_tab_of_a_running_job(take: Shoot, ada: User) -> None:
    job = full_job(ada)
    take_tabs(take, job, "full")
    take(f"/jobs/{job.pk}/?ranks=0,3&smooth=5&x-batch-size=samples&follow=off", "job-charts-chosen")


def test_a_job_whose_slowest_worker_waits_for_its_batches(take: Shoot, ada: User) -> None:
    job = full_job(ada)
    change_reports(
        lambda row: {"data_s": row.compute_s * 0.7, "compute_s": row.compute_s * 0.3} if row.rank == 3 else {}
    )
    for tab in ("overview", "workers", "timeline", "waiting"):
        take(f"/jobs/{job.pk}/?tab={tab}", f"job-{tab}-starved")


def respond(status: int | None, route: Route) -> None:
    """Nothing, as long as there is no status."""
    if status is not None:
        route.fulfill(status=status)


def test_every_tab_of_an_attached_job(page: Page, take: Shoot, ada: User, width: int) -> None:
    waits = factories.make_job(user=ada, name="waits", state=JobState.STARTING, launch="attached", spec=ATTACHED)
    Job.objects.filter(pk=waits.pk).update(
        awaited="ranks, none of which is connected: start the script with paceline run"
    )
    take(f"/jobs/{waits.pk}/", "job-attached-waits")
    job = factories.attached_job(user=ada)
    token_issue(job=job, actor="ada")
    take_tabs(take, job, "attached")
    take("/jobs/", "jobs-attached")
    take("/jobs/new/", "submit-attached")
    open_whole(page, width, f"/jobs/{job.pk}/?tab=processes")
    page.set_viewport_size({"width": width, "height": HEIGHT})
    page.click("#rotate-token")
    page.locator("#token-dialog[open]").wait_for()
    page.click("#token-confirm")
    page.locator("#token-command").wait_for()
    keep(page, "token-dialog")


def test_a_job_whose_figures_are_awaited_or_cannot_be_had(page: Page, ada: User, width: int, errors: list[str]) -> None:
    job = full_job(ada)
    for kind, answer in (("loading", None), ("unreachable", 503)):
        page.route("**/figures/*", partial(respond, answer))
        for tab in ("overview", "heatmap"):
            page.set_viewport_size({"width": width, "height": 3 * HEIGHT})
            page.goto(f"/jobs/{job.pk}/?tab={tab}")
            page.locator(".plot-waiting" if answer is None else ".figure-error:not([hidden])").first.wait_for()
            keep(page, f"job-{tab}-{kind}", drawn=False)
        page.unroute("**/figures/*")
    errors.clear()


def test_machines(take: Shoot, ada: User) -> None:
    factories.demo_job(user=ada)
    busy, lost, *_ = Agent.objects.order_by("-name")
    Agent.objects.filter(pk=lost.pk).update(state=Agent.State.OFFLINE)
    idle = Agent.objects.create(name="machine-9", credential_digest="9" * 64, cpu_count=4, memory_bytes=8 << 30)
    for agent, kind in ((busy, "full"), (lost, "failed"), (idle, "empty")):
        take(f"/workers/{agent.pk}/", f"machine-{kind}")


def test_simulations(take: Shoot, ada: User) -> None:
    done = simulation_submit(scenario="demo", policies=["bsp", "lb-bsp-cpu"], seed=3, user=ada)
    simulation_run(done.pk)
    queued = simulation_submit(scenario="demo", policies=["bsp"], seed=4, user=ada)
    failed = simulation_submit(scenario="demo", policies=["bsp"], seed=5, user=ada)
    Simulation.objects.filter(pk=failed.pk).update(
        state="failed", reason="a fault of the simulator", finished_at=timezone.now()
    )
    take("/simulations/", "simulations")
    for row, kind in ((done, "full"), (queued, "empty"), (failed, "failed")):
        take(f"/simulations/{row.pk}/", f"simulation-{kind}")
    runs = ",".join(str(run) for run in row_ids(done))
    take(f"/compare/?jobs={runs}", "simulation-compare")
    take(f"/jobs/{runs.rpartition(',')[2]}/", "simulation-run")


def row_ids(row: Simulation) -> list[int]:
    return list(row.runs.order_by("id").values_list("id", flat=True))[:6]


def test_alerts(page: Page, take: Shoot, ada: User, width: int) -> None:
    alert_rows(full_job(ada))
    take("/alerts/", "alerts")
    page.set_viewport_size({"width": width, "height": HEIGHT})
    for button, name in (("#rule-new", "rule"), ("[id^=edit-rule-]", "rule-edit"), ("#target-new", "target")):
        page.goto("/alerts/")
        page.locator(button).first.click()
        page.locator("dialog[open]").wait_for()
        keep(page, f"alerts-dialog-{name}")
    for button, name in (("[data-opens=import-dialog]", "import"), ("[id^=silence-]", "silence")):
        page.goto("/alerts/")
        page.locator(button).first.click()
        page.locator("dialog[open]").wait_for()
        keep(page, f"alerts-dialog-{name}")


def test_controls(page: Page, ada: User, width: int) -> None:
    job = full_job(ada)
    path = f"/jobs/{job.pk}/"
    asked = [
        ("", "#job-pause"),
        ("", "#change-policy"),
        ("", "#stop"),
        ("", "[id^=mute-]"),
        ("?tab=processes", "#exclude-w3"),
    ]
    asked += [("?tab=processes", "#drain-s1"), ("?tab=processes", "#add-server"), ("?tab=whatif", "#promote-narx")]
    for query, button in asked:
        page.set_viewport_size({"width": width, "height": HEIGHT})
        page.goto(path + query)
        page.locator(button).first.click()
        page.locator("dialog[open]").wait_for()
        keep(page, f"dialog-{button.strip('#[]^=-').replace('id^=', '')}")
    page.goto(f"{path}?tab=processes")
    page.locator("#exclude-w3").click()
    page.get_by_role("button", name="Exclude w3", exact=True).click()
    page.locator("#job-requests p").first.wait_for()
    keep(page, "requests")
    page.goto("/jobs/")
    page.get_by_text("Columns", exact=True).click()
    keep(page, "jobs-columns")
    page.goto("/jobs/")
    page.get_by_label(f"Select {job.name}").check()
    page.locator("#bulk-stop").click()
    keep(page, "dialog-bulk-stop")
    page.goto("/jobs/new/")
    page.get_by_role("button", name="Validate").click()
    page.locator("#submit-finding").wait_for()
    keep(page, "submit-checked")


def test_teams_and_the_queue(page: Page, take: Shoot, ada: User, width: int) -> None:
    for path in ("teams", "queue"):
        take(f"/{path}/", f"{path}-empty")
    full = full_job(ada)
    team = team_create(name="vision", weight=2.0, actor="ada")
    team_create(name="speech and language", actor="ada")
    for name, role in (("ina", "operator"), ("max", "member"), ("eve@example.org", "admin")):
        user = User.objects.create_user(name)
        user.groups.add(Group.objects.get_or_create(name="operator")[0])
        member_set(team=team, user=user, role=role, actor="ada")
        quota_set(user=user, actor="ada", jobs=2, stored_bytes=10**10)
    quota_set(team=team, actor="ada", jobs=1, slots=8, simulations=4, stored_bytes=10**9)
    owner_set(row=full, team=team, actor="ada")
    owner_set(row=Agent.objects.order_by("pk")[0], team=team, actor="ada")
    simulation_submit(scenario="demo", policies=["bsp"], seed=1, user=ada, team=team)
    for number, name in enumerate(("large", "behind", "nightly sweep 17")):
        waits = Job.objects.create(
            name=name, spec=factories.spec(workers=9 - number), submitted_by=ada, priority=number
        )
        Job.objects.filter(pk=waits.pk).update(team=None if number else team)
    for path, name in (("/teams/", "teams"), (f"/teams/{team.pk}/", "team"), ("/queue/", "queue")):
        take(path, name)
    page.set_viewport_size({"width": width, "height": HEIGHT})
    shoot_dialogs(page, "/teams/", {"team-new": "#team-new"})
    buttons = {"member-new": "#member-new", "team-limits": "#team-limits", "machine-give": "#machine-give"}
    shoot_dialogs(page, f"/teams/{team.pk}/", buttons)


def shoot_dialogs(page: Page, path: str, buttons: Mapping[str, str]) -> None:
    for name, button in buttons.items():
        page.goto(path)
        page.locator(button).first.click()
        page.locator("dialog[open]").wait_for()
        page.wait_for_load_state("networkidle")
        keep(page, f"dialog-{name}")


def test_people(page: Page, take: Shoot, ada: User, width: int) -> None:
    take("/account/", "account-empty")
    for name, role, active in (("eve@example.org", "operator", True), ("bob", "viewer", False)):
        user = User.objects.create_user(name, password="a-long-and-plain-sentence", is_active=active)
        user.groups.add(Group.objects.get_or_create(name=role)[0])
        token_create(user=user, name="nightly", actor=name)
    token_create(user=ada, name="notebook", actor="ada")
    take("/account/", "account")
    take("/account/?of=everyone", "users")
    page.set_viewport_size({"width": width, "height": HEIGHT})
    page.goto("/account/?of=everyone")
    page.locator("[id^=disable-]").first.click()
    page.locator("dialog[open]").wait_for()
    keep(page, "dialog-disable")


def test_signing_in(look: Look, site: str, width: int, settings: Any, tmp_path: Path, errors: list[str]) -> None:
    page = look(site, theme=THEMES[0], width=width)
    page.set_default_timeout(PATIENCE_MS)
    for path, name in (("/login/", "login"), ("/login/once/none/", "login-link-refused")):
        page.goto(path)
        keep(page, name)
    page.goto("/login/")
    page.get_by_label("User name").fill("ada")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    page.locator(".errorlist, [role=alert]").first.wait_for()
    keep(page, "login-wrong")
    settings.PACELINE_URL = site
    with running_provider(tmp_path) as provider:
        settings.OIDC = provider.configured(PACELINE_OIDC_LABEL="Example ID")
        provider.knows("s-2", preferred_username="eve", groups=["cooks"])
        page.goto("/login/")
        keep(page, "login-provider")
        page.get_by_role("link", name="Sign in with Example ID").click()
        page.get_by_placeholder("sub").fill("s-2")
        page.get_by_role("button", name="Authorize").click()
        page.get_by_role("heading", name="You are not signed in").wait_for()
        keep(page, "login-provider-refused")
    errors.clear()


def test_refusals(
    page: Page, look: Look, site: str, width: int, monkeypatch: pytest.MonkeyPatch, errors: list[str]
) -> None:
    page.goto("/jobs/999/")
    keep(page, "error-404")
    viewer = User.objects.create_user("vic")
    viewer.groups.add(Group.objects.get_or_create(name="viewer")[0])
    theirs = look(site, user=viewer, theme=THEMES[0], width=width)
    theirs.goto("/jobs/new/")
    keep(theirs, "error-403")

    def fail(*_: Any, **__: Any) -> Any:
        raise OperationalError("database is locked")

    monkeypatch.setattr("frontend.views.queue.queue_in_order", fail)
    page.goto("/queue/")
    keep(page, "error-503")
    errors.clear()


def test_parameters(take: Shoot, ada: User) -> None:
    take("/jobs/parameters/", "parameters-empty")
    full = full_job(ada)
    for number, policy in enumerate(("uniform", "lb-bsp-cpu", "lb-bsp-linear")):
        job = factories.make_job(user=ada, name=f"sweep-{number}", spec=factories.spec(policy=policy, seed=number))
        factories.make_reports(job, [factories.Pace(shares=factories.EVEN)] * 20)
        JobTag.objects.create(job=job, name="sweep")
    JobTag.objects.create(job=full, name="nightly")
    take("/jobs/parameters/", "parameters")
    take("/jobs/", "jobs-tags")


def test_dialogs_of_machines_and_the_search(page: Page, ada: User, width: int) -> None:
    job = factories.demo_job(user=ada)
    Agent.objects.update(can_test=True, server_slots=1)
    agent = Agent.objects.filter(state="online").order_by("pk")[0]
    shoot_dialogs(page, "/workers/", {"drain": f"#drain-{agent.pk}"})
    shoot_dialogs(page, f"/workers/{agent.pk}/", {"machine-test": "#test-machine"})
    SavedView.objects.create(user=ada, name="running ones", address="/jobs/?state=running")
    page.goto(f"/jobs/{job.pk}/?tab=processes")
    page.keyboard.press("/")
    page.locator("#search-dialog").get_by_text("running ones").wait_for()
    keep(page, "search")
    page.keyboard.type("machine-")
    page.locator("#search-dialog .match").nth(3).wait_for()
    keep(page, "search-found")


def test_an_autopilot_and_pinned_charts(take: Shoot, ada: User) -> None:
    job = full_job(ada)
    Job.objects.filter(pk=job.pk).update(spec=job.spec | {"autopilot": {"mode": "suggest"}}, state="running")
    judged(job)
    measured(job)
    judged(job, switches=False)
    for tab in ("overview", "whatif"):
        take(f"/jobs/{job.pk}/?tab={tab}", f"job-{tab}-autopilot")
    for figure in ("batch-size", "iteration-time"):
        SavedView.objects.create(user=ada, name=figure, address=f"/jobs/{job.pk}/?ranks=3", figure=figure)
    take("/", "overview-pins")
