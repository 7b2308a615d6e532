"""Without a mouse: Tab reaches whatever can be clicked and shows where it is, and each page's own work can be done."""

import re

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from controlplane.fleet.models import Agent
from controlplane.jobs.models import AuditEntry, Job
from controlplane.protocol.spec import parse_spec
from controlplane.runtime import log, names
from controlplane.runtime.redis import shared
from controlplane.telemetry.models import Simulation
from frontend.tabs import TABS
from tests.browser.conftest import Look
from tests.frontend import factories

pytestmark = [
    pytest.mark.browser,
    # A request that a page breaks off when it is left takes its body's file with it, whenever that is collected.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CLICKABLE = """() => [...document.querySelectorAll(
  'main :is(a[href], button, input, select, summary, [tabindex="0"])'
)].filter(
  each => each.checkVisibility({visibilityProperty: true}) && !each.disabled && each.type !== 'hidden'
)"""
"""What is there to be clicked below the bar that all pages share."""

WATCH = """() => {
  window.reached = new Set();
  window.unseen = [];
  document.addEventListener('focusin', event => {
    const it = event.target;
    window.reached.add(it);
    const shown = [it, it.nextElementSibling].filter(Boolean).map(each => getComputedStyle(each).outlineStyle);
    if (shown.every(style => style === 'none')) window.unseen.push(it.outerHTML.slice(0, 120));
  });
}"""

# A group of radio buttons is one stop, whichever of them is on.
MISSED = f"""() => ({CLICKABLE})().filter(each => !window.reached.has(each)).filter(
  each => each.type !== 'radio' || ![...window.reached].some(other => other.name === each.name)
).map(each => each.outerHTML.slice(0, 120))"""


@pytest.fixture
def job(ada: User) -> Job:
    """A job with everything on its page."""
    job = factories.played_job(user=ada)
    log.start_log(job.pk, parse_spec(job.spec))
    return job


def tab_through(page: Page, path: str) -> tuple[list[str], list[str]]:
    """What Tab does not come to, and where it does not show that it is there."""
    page.goto(path)
    for figure in page.locator("plotly-figure").all():
        figure.scroll_into_view_if_needed()
        figure.locator(".main-svg, .figure-empty:not([hidden])").first.wait_for()
    page.locator("#main").focus()
    page.evaluate(WATCH)
    for _ in range(page.evaluate(f"({CLICKABLE})().length") + 5):
        page.keyboard.press("Tab")
    return page.evaluate(MISSED), page.evaluate("window.unseen")


def test_tab_reaches_what_can_be_clicked_and_shows_where_it_is(
    site: str, look: Look, ada: User, job: Job, simulation: Simulation, redis_url: str
) -> None:
    # Nothing copies logs here: no banner is to come while the pages are looked at.
    shared().delete(names.LIVE_JOBS)
    page = look(site, user=ada)
    runs = ",".join(map(str, simulation.runs.values_list("pk", flat=True)))
    paths = [f"/jobs/{job.pk}/?tab={tab}" for tab in TABS]
    paths += ["/jobs/", f"/compare/?jobs={runs}", "/audit/", "/simulations/"]
    paths += [f"/simulations/{simulation.pk}/", f"/workers/{Agent.objects.earliest('pk').pk}/"]
    assert {path: found for path in paths if (found := tab_through(page, path)) != ([], [])} == {}


def test_the_focus_stays_on_a_job_when_the_list_is_fetched_anew(
    site: str, look: Look, ada: User, job: Job, redis_url: str
) -> None:
    page = look(site, user=ada)
    page.goto("/jobs/")
    page.locator(f"a.row-link[href='/jobs/{job.pk}/']").focus()
    first = page.locator("#jobs-table table").element_handle()
    assert first is not None
    Job.objects.filter(pk=job.pk).update(name="renamed")
    page.evaluate("htmx.trigger('#jobs-table', 'refresh')")
    expect(page.locator("a.row-link", has_text="renamed")).to_be_focused()
    second = page.locator("#jobs-table table").element_handle()
    assert second is not None
    with page.expect_response(lambda answer: answer.url.endswith("/jobs/")):
        page.evaluate("htmx.trigger('#jobs-table', 'refresh')")
    page.wait_for_function("() => !document.querySelector('#jobs-table').classList.contains('htmx-request')")
    assert first.evaluate("node => node.isConnected") is False
    assert second.evaluate("node => node.isConnected"), "what came back as it was has been replaced"


def press(page: Page, selector: str, key: str) -> None:
    """Press a key where the focus is."""
    page.locator(selector).focus()
    page.keyboard.press(key)


def test_a_scenario_is_simulated_and_its_policies_compared_without_a_mouse(
    site: str, look: Look, ada: User, simulation: Simulation, redis_url: str
) -> None:
    page = look(site, user=ada)
    page.goto("/simulations/")
    page.locator("#scenario").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("[data-scenario=demo]")).to_be_hidden()
    page.keyboard.press("ArrowUp")
    press(page, "[data-scenario=demo] input[value=bsp]", "Space")
    press(page, "#simulate-button", "Enter")
    page.wait_for_url(re.compile(r"/simulations/\d+/$"))
    assert Simulation.objects.latest("pk").policies == ["bsp"]
    page.goto(f"/simulations/{simulation.pk}/")
    press(page, "#compare", "Enter")
    page.wait_for_url(re.compile(r"/compare/\?jobs="))
    second = simulation.runs.latest("pk").pk
    press(page, f"thead a[href$='baseline={second}']", "Enter")
    page.wait_for_url(re.compile(rf"baseline={second}"))
    page.locator("input[name=target]").focus()
    page.keyboard.type("70")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("target=70"))
    expect(page.locator("tbody")).to_contain_text(["70"])


def test_other_machines_are_chosen_without_a_mouse(site: str, look: Look, ada: User, redis_url: str) -> None:
    page = look(site, user=ada)
    page.goto("/simulations/")
    expect(page.get_by_role("slider", name="Bandwidth")).to_be_disabled()
    page.locator("#scenario").select_option("psld-alexnet-8")
    press(page, "#bandwidth", "ArrowRight")
    expect(page.locator("#bandwidth-value")).to_have_text("2\N{MULTIPLICATION SIGN}")
    page.locator("#scenario").select_option("demo")
    press(page, "#workers", "ArrowLeft")
    expect(page.locator("#workers-value")).to_have_text("3 (default 4)")
    press(page, "#global_batch", "End")
    expect(page.get_by_role("slider", name="Global batch")).to_have_attribute("aria-valuetext", "1024")
    press(page, "#simulate-button", "Enter")
    page.wait_for_url(re.compile(r"/simulations/\d+/$"))
    expect(page.locator("#simulation")).to_contain_text("Changed cluster: 3 workers, a global batch of 1024.")
    assert Simulation.objects.get().variation == {"workers": 3, "global_batch": 1024}


def test_a_predictor_is_promoted_and_a_report_taken_without_a_mouse(
    site: str, look: Look, ada: User, job: Job, redis_url: str
) -> None:
    page = look(site, user=ada)
    page.goto(f"/jobs/{job.pk}/?tab=whatif")
    button = page.locator("#promote-narx")
    button.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Escape")
    expect(button).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Promote narx")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#job-requests")).to_contain_text("Pending: change of predictor")
    assert AuditEntry.objects.filter(action="predictor-promote").count() == 1
    page.locator("#report").focus()
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    assert b"<!doctype html>" in download.value.path().read_bytes()[:200]
