"""What an operator does from pages: each asks once and names its effect, and a link shows the same charts again."""

import json
import re

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from controlplane.fleet.models import Agent
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
    expect(dialog.locator('[name="batching"]:checked')).to_have_value("lb-bsp-cpu")
    dialog.get_by_role("radio", name="ssp", exact=True).click()
    expect(dialog.locator("#about-barrier")).to_contain_text("A worker may be a few iterations ahead of the slowest.")
    expect(dialog.locator('[id="h-barrier.staleness"]')).to_have_text(
        "Maximum number of iterations by which a worker may be ahead of the slowest; at least 0; default 5"
    )
    dialog.get_by_label("staleness").fill("3")
    assert axe_findings(page, within="#policy-dialog") == []
    with page.expect_request(lambda request: request.method == "PATCH") as sent:
        dialog.get_by_role("button", name="Apply").click()
    assert json.loads(sent.value.post_data or "") == {"barrier": {"name": "ssp", "staleness": 3}}
    expect(dialog).to_be_hidden()
    expect(page.locator("#job-requests")).to_contain_text("Pending: barrier → ssp")


def test_a_refused_change_reports_its_title_and_its_trace(
    site: str, look: Look, ada: User, job: Job, errors: list[str]
) -> None:
    page = look(site, user=ada)
    page.goto(f"/jobs/{job.pk}/")
    page.locator("#change-policy").click()
    dialog = page.locator("#policy-dialog")
    dialog.get_by_role("radio", name="ssp", exact=True).click()
    dialog.get_by_label("staleness").fill("many")
    dialog.get_by_role("button", name="Apply").click()
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
    factories.make_decision(job, 50, "change-policies", asked, reason="requested by ada", iteration=30)
    page = look(site, user=ada)
    page.goto(f"/jobs/{job.pk}/?ranks=3&smooth=5")
    lines = "document.querySelector('#figure-batch-size .plot')?._fullData?.map(each => each.name)"
    page.wait_for_function(f"() => JSON.stringify({lines}) === JSON.stringify(['w3', 'Decisions'])")
    expect(page.get_by_label("Smoothing")).to_have_value("5")
    page.get_by_label("Decisions", exact=True).uncheck()
    page.wait_for_function(f"() => JSON.stringify({lines}) === JSON.stringify(['w3'])")
    expect(page).to_have_url(re.compile(r"ranks=3&smooth=5&marks=off$"))
    page.keyboard.press("Escape")
    page.locator("h1").click()
    page.keyboard.press("[")
    page.wait_for_function(f"() => JSON.stringify({lines}) === JSON.stringify(['w2'])")
    page.keyboard.press("f")
    expect(page.get_by_label("Follow")).not_to_be_checked()
    page.reload()
    expect(page.get_by_label("Follow")).not_to_be_checked()
    page.wait_for_function(f"() => JSON.stringify({lines}) === JSON.stringify(['w2'])")


def test_several_jobs_are_stopped_at_once_and_columns_can_be_hidden(
    site: str, look: Look, ada: User, redis_url: str
) -> None:
    jobs = [Job.objects.create(name=f"job-{k}", spec=factories.spec(), submitted_by=ada) for k in range(3)]
    page = look(site, user=ada)
    page.goto("/jobs/?hide=accuracy")
    expect(page.get_by_role("columnheader", name="Accuracy")).to_be_hidden()
    page.get_by_text("Columns", exact=True).click()
    page.get_by_label("Lost time").uncheck()
    expect(page).to_have_url(f"{site}/jobs/?hide=waiting%2Caccuracy")
    page.keyboard.press("Escape")
    for job in jobs[:2]:
        page.get_by_label(f"Select {job.name}").check()
    expect(page.locator("#bulk-count")).to_have_text("2 jobs")
    page.locator("#bulk-stop").click()
    expect(page.locator("#bulk-effect")).to_contain_text("their workers and servers stop immediately")
    assert axe_findings(page, within="dialog[open]") == []
    page.get_by_role("button", name="Stop jobs").click()
    expect(page.locator("#toasts")).to_have_text("Stop of 2 jobs requested. Audit")
    assert AuditEntry.objects.filter(action="job-stop").count() == 2


def test_a_spec_can_be_checked_without_submitting_it(site: str, look: Look, ada: User, errors: list[str]) -> None:
    page = look(site, user=ada)
    page.goto("/jobs/new/")
    page.get_by_label("Checkpoint interval").fill("7")
    page.get_by_label("Data partition").select_option("iid")
    shown = json.loads(page.locator("#preview").text_content() or "")
    assert (shown["checkpoint"]["every"], shown["workload"]["partition"]) == (7, "iid")
    page.get_by_role("button", name="Validate").click()
    expect(page.locator("#submit-finding")).to_contain_text(
        "The spec is valid: digits cannot be scheduled: needs 4 worker slots"
    )
    page.get_by_label("Communication").select_option("all-reduce")
    page.get_by_role("button", name="Validate").click()
    expect(page.get_by_label("Parameter servers")).to_have_attribute("aria-invalid", "true")
    assert Job.objects.count() == 0
    assert len(errors) == 1
    errors.clear()


@pytest.fixture
def queue(ada: User, redis_url: str) -> list[Job]:
    """One job runs on two of three slots, one that waits needs all, and one could never start."""
    factories.make_agents(3)
    running = factories.make_job(user=ada, name="running")
    factories.make_processes(running, list(Agent.objects.all()[:2]), shares=(64, 64))
    large = Job.objects.create(name="large", spec=factories.spec(workers=3, servers=1), submitted_by=ada)
    never = Job.objects.create(name="never", spec=factories.spec(labels={"gpu": "a100"}), submitted_by=ada)
    return [running, large, never]


def test_one_click_leads_from_a_job_that_waits_to_the_one_in_its_way(
    site: str, look: Look, ada: User, queue: list[Job]
) -> None:
    page = look(site, user=ada)
    page.goto("/")
    expect(page.locator("#overview-jobs")).to_contain_text("none of the 3 online has gpu=a100")
    page.locator("#overview-jobs").get_by_role("link", name=f"job {queue[0].pk} (running)").click()  # the one click
    expect(page).to_have_url(f"{site}/jobs/{queue[0].pk}/")


def test_an_operator_moves_a_job_in_the_queue(site: str, look: Look, ada: User, queue: list[Job]) -> None:
    page = look(site, user=ada)
    page.goto(f"/jobs/{queue[1].pk}/")
    page.locator("#job-priority").click()
    page.locator("#ask-choice select").select_option("50")
    assert axe_findings(page, within="dialog[open]") == []
    with page.expect_request(lambda request: request.method == "PATCH") as sent:
        page.get_by_role("button", name="Change priority").click()
    assert json.loads(sent.value.post_data or "") == {"priority": 50}
    expect(page.locator("#toasts")).to_have_text(f"Priority of job #{queue[1].pk} set to 50. Audit")
    assert Job.objects.get(pk=queue[1].pk).priority == 50
    expect(page.locator("#job-priority")).to_have_text("Priority 50")
