"""Logs as they come: the newest line in sight while Follow is on, and a traceback as one record that stays open."""

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from controlplane.jobs.models import Job
from controlplane.telemetry.models import LogLine
from tests.browser.conftest import Look, axe_findings
from tests.frontend import factories

pytestmark = pytest.mark.browser

END = """() => {
  const each = document.getElementById("log-list");
  return each.scrollHeight - each.clientHeight - each.scrollTop;
}"""
TRACE = ("Traceback (most recent call last):", '  File "train.py", line 7, in <module>', "ValueError: no such data set")


@pytest.fixture
def job(ada: User, redis_url: str) -> Job:
    job = factories.demo_job(user=ada)
    write(job, *TRACE, *(f"step {k}" for k in range(80)))
    return job


def write(job: Job, *texts: str) -> None:
    LogLine.objects.bulk_create(
        LogLine(job=job, role="worker", index=0, instance="w0-a", at=factories.START, level="output", text=text)
        for text in texts
    )


def refresh(page: Page, text: str) -> None:
    """What a tick of the page's websocket does."""
    page.evaluate("htmx.trigger(document.querySelector('[data-live^=\"job:\"]'), 'refresh')")
    expect(page.locator("#log-list")).to_contain_text(text)


def test_the_newest_line_is_in_sight_until_one_scrolls_up(site: str, look: Look, ada: User, job: Job) -> None:
    page = look(site, user=ada)
    page.goto(f"/jobs/{job.pk}/?tab=logs")
    expect(page.get_by_text("step 79")).to_be_in_viewport()
    write(job, "step 80")
    refresh(page, "step 80")
    page.wait_for_function(f"() => ({END})() < 2")
    page.locator("#log-list").hover()
    page.mouse.wheel(0, -400)
    expect(page.get_by_label("Follow")).not_to_be_checked()
    write(job, "step 81")
    refresh(page, "step 81")
    assert page.evaluate(END) > 100
    page.get_by_label("Follow").check()
    page.wait_for_function(f"() => ({END})() < 2")
    assert axe_findings(page, within="#job-logs") == []


def test_a_traceback_is_one_record_that_stays_open(site: str, look: Look, ada: User, job: Job) -> None:
    page = look(site, user=ada)
    page.goto(f"/jobs/{job.pk}/?tab=logs&follow=off")
    record = page.locator(".log-record", has_text="ValueError: no such data set")
    record.locator("summary").click()
    expect(record.locator("pre")).to_contain_text("line 7, in <module>")
    write(job, "step 80")
    refresh(page, "step 80")
    expect(record.locator("pre")).to_be_visible()
