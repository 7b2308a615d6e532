"""The verdict as an action: one click switches to the policy that saves most, one click goes back."""

import json

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import expect

from controlplane.jobs.models import Decision, Job
from controlplane.protocol.spec import parse_spec
from controlplane.runtime import log
from controlplane.runtime.models import Forecast
from tests.browser.conftest import Look, axe_findings
from tests.frontend import factories

pytestmark = pytest.mark.browser


@pytest.fixture
def job(ada: User, redis_url: str) -> Job:
    job = factories.played_job(user=ada)
    Forecast.objects.update(made_at=timezone.now())
    log.start_log(job.pk, parse_spec(job.spec))
    return job


def test_one_click_switches_to_what_saves_most_and_one_goes_back(site: str, look: Look, ada: User, job: Job) -> None:
    page = look(site, user=ada)
    page.goto(f"/jobs/{job.pk}/")
    button = page.get_by_role("button", name="Switch to lb-bsp-linear: saves about 12%")
    assert axe_findings(page, within="#advice") == []
    with page.expect_request(lambda request: request.method == "PATCH") as sent:
        button.click()
    assert json.loads(sent.value.post_data or "") == {"batching": {"name": "lb-bsp-linear"}}
    expect(page.locator("#job-requests")).to_contain_text("Pending: batching → lb-bsp-linear")
    expect(page.locator("#switch-policy")).to_have_count(0)
    choices = {"choices": {"batching": {"name": "lb-bsp-linear", "parameters": {}}}, "first_iteration": 30}
    row = factories.make_decision(job, 60, "change-policies", choices, reason="requested", iteration=30)
    Decision.objects.filter(pk=row.pk).update(at=timezone.now())
    page.reload()
    expect(page.locator("#advice-back")).to_contain_text("Changed from lb-bsp-cpu to lb-bsp-linear")
    expect(page.locator("#advice-back")).to_contain_text("iterations are unchanged")
    with page.expect_request(lambda request: request.method == "PATCH") as sent:
        page.get_by_role("button", name="Switch back to lb-bsp-cpu").click()
    assert json.loads(sent.value.post_data or "") == {"batching": {"name": "lb-bsp-cpu"}}
    expect(page.locator("#job-requests")).to_contain_text("Pending: batching → lb-bsp-cpu")


def test_what_if_switches_to_any_of_its_policies(site: str, look: Look, ada: User, job: Job) -> None:
    page = look(site, user=ada)
    page.goto(f"/jobs/{job.pk}/?tab=whatif")
    with page.expect_request(lambda request: request.method == "PATCH") as sent:
        page.get_by_role("button", name="Switch to uniform, asp").click()
    assert json.loads(sent.value.post_data or "") == {"batching": {"name": "uniform"}, "barrier": {"name": "asp"}}


def test_the_dialog_reports_what_each_policy_is_predicted_to_save(site: str, look: Look, ada: User, job: Job) -> None:
    page = look(site, user=ada)
    page.goto(f"/jobs/{job.pk}/")
    page.locator("#change-policy").click()
    expect(page.locator("#policy-prediction")).to_have_text("These are the current policies.")
    page.get_by_role("radio", name="lb-bsp-linear saves 12%").click()
    expect(page.locator("#policy-prediction")).to_contain_text(
        "Predicted with default parameters: saves 12% of the time (7% to 17% over runs, model error 4%)"
    )
    page.get_by_role("radio", name="psld-lpt").hover()
    expect(page.locator("#about-placement")).to_contain_text("Assigns the largest block first")
    assert axe_findings(page, within="#policy-dialog") == []
