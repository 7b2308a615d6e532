"""A proposal of an autopilot is taken by one click, and its mode is changed by another."""

import json

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from controlplane.jobs.models import Job
from controlplane.protocol.spec import parse_spec
from controlplane.runtime import log
from tests.browser.conftest import Look, axe_findings
from tests.frontend import factories
from tests.frontend.test_autopilot import judged, measured

pytestmark = pytest.mark.browser


@pytest.fixture
def job(ada: User, redis_url: str) -> Job:
    job = factories.played_job(user=ada)
    Job.objects.filter(pk=job.pk).update(spec=job.spec | {"autopilot": {"mode": "suggest"}}, state="running")
    log.start_log(job.pk, parse_spec(job.spec))
    judged(job)
    measured(job)
    judged(job, switches=False)
    return Job.objects.get(pk=job.pk)


def test_one_click_takes_what_it_proposes_and_one_lets_it_switch_by_itself(
    site: str, look: Look, ada: User, job: Job
) -> None:
    page = look(site, user=ada)
    page.goto(f"/jobs/{job.pk}/")
    assert axe_findings(page, within="#advice-autopilot") == []
    with page.expect_request(lambda request: request.method == "PATCH") as sent:
        page.get_by_role("button", name="Switch to lb-bsp-linear, bsp: saves about 30%").click()
    assert json.loads(sent.value.post_data or "") == {"batching": {"name": "lb-bsp-linear"}}
    expect(page.locator("#job-requests")).to_contain_text("Pending: batching → lb-bsp-linear")
    page.goto(f"/jobs/{job.pk}/?tab=whatif")
    table = page.locator("#job-autopilot")
    expect(table).to_contain_text("Iteration 20: switched to lb-bsp-linear, bsp")
    assert axe_findings(page, within="#job-autopilot") == []
    with page.expect_request(lambda request: request.method == "PATCH") as sent:
        page.get_by_role("button", name="Switch automatically").click()
    assert json.loads(sent.value.post_data or "") == {"mode": "auto"}
    expect(page.locator("#job-requests")).to_contain_text("mode of the autopilot")
