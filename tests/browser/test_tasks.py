"""What an operator wants to know or do, in as few clicks as the documentation promises: every press counts."""

import re
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import Page, expect

from controlplane.core.states import JobState
from controlplane.fleet.models import Agent
from controlplane.jobs.models import Job
from controlplane.protocol.spec import parse_spec
from controlplane.runtime import log
from controlplane.telemetry.models import LogLine
from tests.browser.conftest import Look
from tests.frontend import factories

pytestmark = pytest.mark.browser

COUNT = """addEventListener("mousedown", event => {
  if (event.isTrusted) sessionStorage.setItem("clicks", Number(sessionStorage.getItem("clicks") ?? 0) + 1);
}, true);"""


def clicks(page: Page) -> int:
    """How often a button of the mouse was pressed since the page was opened, over all pages since."""
    return int(page.evaluate("sessionStorage.getItem('clicks') ?? 0"))


@pytest.fixture(autouse=True)
def _lately(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factories, "START", timezone.now() - timedelta(seconds=30))


@pytest.fixture
def page(site: str, look: Look, ada: User) -> Iterator[Page]:
    page = look(site, user=ada)
    page.add_init_script(COUNT)
    yield page
    page.wait_for_load_state("networkidle")


def uneven_job(user: User) -> Job:
    job = factories.make_job(user=user, spec=factories.spec(policy="uniform"))
    factories.make_processes(job, factories.make_agents(), shares=factories.EVEN)
    factories.make_reports(job, [factories.Pace(shares=factories.EVEN)] * 20)
    factories.make_flag(job)
    log.start_log(job.pk, parse_spec(job.spec))
    return job


def test_which_machine_is_slow_and_why_takes_one_click(page: Page, ada: User, redis_url: str) -> None:
    uneven_job(ada)
    page.goto("/")
    expect(page.locator(".cost").first).to_contain_text("w3 holds the others back")
    expect(page.locator(".cost").first).to_contain_text("machine-3")
    page.locator(".cost-job").first.click()
    expect(page.locator(".flag-line")).to_contain_text("w3 computes 3.9 times as long per sample")
    expect(page.locator(".verdict")).to_contain_text("w3 sets the pace")
    assert clicks(page) == 1


def test_the_last_decision_and_whether_it_helped_takes_one_click(page: Page, ada: User, redis_url: str) -> None:
    job = factories.demo_job(user=ada)
    shares = {"shares": {"0": 93, "1": 93, "2": 47, "3": 23}, "generation": 1, "policy": "lb-bsp-cpu"}
    factories.make_decision(job, 60, "set-shares", shares, reason="in proportion to predicted speed", iteration=10)
    page.goto("/")
    page.locator("#last-decision").click()
    row = page.locator("#decision-0-60")
    expect(row).to_contain_text("264 ms → 102 ms")
    expect(row).to_contain_text("61% shorter")
    assert clicks(page) == 1


def test_two_policies_are_compared_in_three_clicks(page: Page, ada: User, redis_url: str) -> None:
    uneven_job(ada)
    balanced = factories.make_job(user=ada, name="balanced")
    factories.make_reports(balanced, [factories.Pace(shares=factories.BALANCED)] * 20)
    page.goto("/jobs/")
    page.get_by_label("Select digits").check()
    page.get_by_label("Select balanced").check()
    page.locator("#bulk-compare").click()
    table = page.get_by_role("region", name="Comparison")
    expect(table).to_contain_text(re.compile("Iteration time", re.IGNORECASE))
    expect(page.locator("#differences-title + .card")).to_contain_text("uniform")
    assert clicks(page) == 3


def test_a_policy_is_changed_in_three_clicks(page: Page, ada: User, redis_url: str) -> None:
    job = uneven_job(ada)
    page.goto(f"/jobs/{job.pk}/")
    page.locator("#change-policy").click()
    page.get_by_role("radio", name="lb-bsp-cpu").click()
    page.get_by_role("button", name="Apply").click()
    expect(page.locator("#job-requests")).to_contain_text("Pending: batching → lb-bsp-cpu")
    assert clicks(page) == 3


def test_a_machine_is_drained_in_two_clicks(page: Page, ada: User, redis_url: str) -> None:
    uneven_job(ada)
    agent = Agent.objects.order_by("pk")[0]
    page.goto("/workers/")
    page.locator(f"#drain-{agent.pk}").click()
    dialog = page.locator("#drain-dialog")
    expect(dialog).to_contain_text("w0 of job #")
    dialog.get_by_role("button", name=f"Drain {agent.name}").click()
    expect(dialog).to_be_hidden()
    assert (Agent.objects.get(pk=agent.pk).scheduling, clicks(page)) == ("draining", 2)


def test_why_a_job_does_not_start_takes_one_click(page: Page, ada: User, redis_url: str) -> None:
    factories.make_agents(3)
    running = factories.make_job(user=ada, name="running")
    factories.make_processes(running, list(Agent.objects.all()[:2]), shares=(64, 64))
    waits = Job.objects.create(name="large", spec=factories.spec(workers=3, servers=1), submitted_by=ada)
    page.goto("/")
    page.locator("#overview-jobs").get_by_role("link", name="large", exact=True).click()
    expect(page).to_have_url(re.compile(f"/jobs/{waits.pk}/"))
    notice = page.locator("#job-facts .notice")
    expect(notice).to_contain_text("Not started:")
    expect(notice.get_by_role("link", name=f"job {running.pk} (running)")).to_be_visible()
    assert clicks(page) == 1


def test_what_waiting_cost_this_week_takes_one_click(page: Page, ada: User, redis_url: str) -> None:
    job = uneven_job(ada)
    page.goto("/")
    page.get_by_role("link", name="What waiting cost this week").click()
    expect(page.get_by_role("navigation", name="Period").locator("[aria-current]")).to_have_text("7 days")
    expect(page.locator(".facts-card")).to_contain_text(f"{job.waiting_s:.1f} s")
    assert clicks(page) == 1


def test_a_chart_is_taken_into_a_paper_in_two_clicks(page: Page, ada: User, redis_url: str) -> None:
    job = factories.demo_job(user=ada)
    page.goto(f"/jobs/{job.pk}/")
    figure = page.locator("plotly-figure:not([trace])").first
    expect(figure.locator(".main-svg").first).to_be_visible()
    heading = figure.get_attribute("heading")
    figure.get_by_text("Export").click()
    with page.expect_download() as download:
        figure.get_by_role("button", name="SVG", exact=True).click()
    picture = download.value.path().read_text()
    assert picture.startswith("<svg")
    assert f"{heading} \N{MIDDLE DOT} digits #{job.pk}" in picture
    assert clicks(page) == 2


def test_why_a_job_failed_takes_one_click(page: Page, ada: User, redis_url: str) -> None:
    job = factories.make_job(user=ada, state=JobState.FAILED, reason="w2 ended with status 1; no checkpoint")
    factories.make_processes(job, factories.make_agents())
    written = ("Traceback (most recent call last):", '  File "train.py", line 7, in <module>', "ValueError: no data")
    LogLine.objects.bulk_create(
        LogLine(job=job, role="worker", index=2, instance="w2-a", at=factories.START, level="output", text=text)
        for text in written
    )
    page.goto("/")
    page.locator("#overview-jobs").get_by_role("link", name="digits", exact=True).click()
    expect(page.locator("#job-facts .notice-bad")).to_contain_text("w2 ended with status 1")
    expect(page.locator("#failure summary")).to_contain_text("w2 on machine-2: ValueError: no data")
    expect(page.locator("#failure pre")).to_contain_text("line 7, in <module>")
    assert clicks(page) == 1
