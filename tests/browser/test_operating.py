"""What an operator does from pages: each asks once and names its effect, and a link shows the same charts again."""

import json
import re

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from controlplane.jobs.models import AuditEntry, Job
from controlplane.protocol.spec import parse_spec
from controlplane.runtime import log
from tests.browser.conftest import Look, axe_findings
from tests.frontend import factories

pytestmark = pytest.mark.browser


@pytest.fixture
def job(ada: User, redis_url: str) -> Job:
    job = factories.demo_job(user=ada)
    log.start_log(job.pk, parse_spec(job.spec))
    return job


def test_policies_are_changed_from_what_holds_now(site: str, look: Look, ada: User, job: Job) -> None:
    page = look(site, user=ada)
    page.goto(f"/jobs/{job.pk}/")
    page.locator("#change-policy").click()
    dialog = page.locator("#policy-dialog")
    expect(dialog.get_by_label("Batching", exact=True)).to_have_value("lb-bsp-cpu")
    dialog.get_by_label("Barrier", exact=True).select_option("ssp")
    dialog.get_by_label("Settings of barrier").fill("staleness=3")
    assert axe_findings(page, within="#policy-dialog") == []
    with page.expect_request(lambda request: request.method == "PATCH") as sent:
        dialog.get_by_role("button", name="Change it").click()
    assert json.loads(sent.value.post_data or "") == {"barrier": {"name": "ssp", "staleness": 3}}
    expect(dialog).to_be_hidden()
    expect(page.locator("#job-requests")).to_contain_text("Pending: barrier becomes ssp")


def test_a_refused_change_says_its_title_and_its_trace(
    site: str, look: Look, ada: User, job: Job, errors: list[str]
) -> None:
    page = look(site, user=ada)
    page.goto(f"/jobs/{job.pk}/")
    page.locator("#change-policy").click()
    dialog = page.locator("#policy-dialog")
    dialog.get_by_label("Barrier", exact=True).select_option("ssp")
    dialog.get_by_label("Settings of barrier").fill("staleness=many")
    dialog.get_by_role("button", name="Change it").click()
    alert = page.locator("#policy-alert")
    expect(alert.locator("strong")).to_have_text(re.compile(r"\w"))
    expect(alert.get_by_role("button", name=re.compile("^Copy trace id [0-9a-f]"))).to_be_visible()
    assert axe_findings(page, within="#policy-dialog") == []
    # The browser itself notes that a request was refused.
    assert len(errors) == 1
    errors.clear()


def test_a_link_shows_the_same_charts_and_decisions_can_be_taken_off(
    site: str, look: Look, ada: User, job: Job
) -> None:
    asked = {"choices": {"barrier": {"name": "asp"}}, "first_iteration": 30}
    factories.make_decision(job, 50, "change-policies", asked, reason="asked for by ada", iteration=30)
    page = look(site, user=ada)
    page.goto(f"/jobs/{job.pk}/?ranks=3&smooth=5")
    lines = "document.querySelector('#figure-batch-size .plot')?._fullData?.map(each => each.name)"
    page.wait_for_function(f"JSON.stringify({lines}) === JSON.stringify(['w3', 'Decisions'])")
    expect(page.get_by_label("Smoothing")).to_have_value("5")
    page.get_by_label("Decisions", exact=True).uncheck()
    page.wait_for_function(f"JSON.stringify({lines}) === JSON.stringify(['w3'])")
    expect(page).to_have_url(re.compile(r"ranks=3&smooth=5&marks=off$"))
    page.keyboard.press("Escape")
    page.locator("h1").click()
    page.keyboard.press("[")
    page.wait_for_function(f"JSON.stringify({lines}) === JSON.stringify(['w2'])")
    page.keyboard.press("f")
    expect(page.get_by_label("Follow")).not_to_be_checked()
    page.reload()
    expect(page.get_by_label("Follow")).not_to_be_checked()
    page.wait_for_function(f"JSON.stringify({lines}) === JSON.stringify(['w2'])")


def test_several_jobs_are_stopped_at_once_and_columns_can_be_hidden(
    site: str, look: Look, ada: User, redis_url: str
) -> None:
    jobs = [Job.objects.create(name=f"job-{k}", spec=factories.spec(), submitted_by=ada) for k in range(3)]
    page = look(site, user=ada)
    page.goto("/jobs/?hide=accuracy")
    expect(page.get_by_role("columnheader", name="Accuracy")).to_be_hidden()
    page.get_by_text("Columns", exact=True).click()
    page.get_by_label("Waiting").uncheck()
    expect(page).to_have_url(f"{site}/jobs/?hide=waiting%2Caccuracy")
    page.keyboard.press("Escape")
    for job in jobs[:2]:
        page.get_by_label(f"Select {job.name}").check()
    expect(page.locator("#bulk-count")).to_have_text("2 jobs")
    page.locator("#bulk-stop").click()
    expect(page.locator("#bulk-effect")).to_contain_text("their workers and servers end at once")
    assert axe_findings(page, within="dialog[open]") == []
    page.get_by_role("button", name="Stop them").click()
    expect(page.locator("#toasts")).to_have_text("2 jobs were asked to stop. Audit")
    assert AuditEntry.objects.filter(action="job-stop").count() == 2


def test_a_spec_can_be_checked_without_submitting_it(site: str, look: Look, ada: User, errors: list[str]) -> None:
    page = look(site, user=ada)
    page.goto("/jobs/new/")
    page.get_by_label("Checkpoint every").fill("7")
    page.get_by_label("Samples of each worker").select_option("iid")
    shown = json.loads(page.locator("#preview").text_content() or "")
    assert (shown["checkpoint"]["every"], shown["workload"]["partition"]) == (7, "iid")
    page.get_by_role("button", name="Check only").click()
    expect(page.locator("#submit-finding")).to_contain_text("It can run. digits needs 4 worker slots")
    page.get_by_label("Communication").select_option("all-reduce")
    page.get_by_role("button", name="Check only").click()
    expect(page.get_by_label("Parameter servers")).to_have_attribute("aria-invalid", "true")
    assert Job.objects.count() == 0
    assert len(errors) == 1
    errors.clear()
