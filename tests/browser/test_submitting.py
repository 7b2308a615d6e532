"""Submitting and stopping from pages: what the server says lands where it belongs, and nothing happens twice."""

import json
import re

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from controlplane.jobs.models import AuditEntry, Job
from controlplane.telemetry.models import Simulation
from tests.browser.conftest import Look
from tests.frontend import factories

pytestmark = pytest.mark.browser

JOB_PAGE = re.compile(r"/jobs/\d+/$")


def test_the_preview_is_what_is_sent(site: str, look: Look, ada: User) -> None:
    page = look(site, user=ada)
    page.goto("/jobs/new/")
    page.get_by_label("Baseline: digits under plain BSP").check()
    page.get_by_label("Workers", exact=True).fill("3")
    shown = json.loads(page.locator("#preview").text_content() or "")
    assert (shown["workers"], shown["synchronization"]["batching"]) == (3, {"name": "uniform"})
    assert f"curl -X POST {site}/api/v1/jobs" in (page.locator("#curl").text_content() or "")
    assert "Authorization: Bearer $PACELINE_API_TOKEN" in (page.locator("#curl").text_content() or "")
    with page.expect_request("**/api/v1/jobs") as sent:
        page.locator("#submit-button").click()
    assert json.loads(sent.value.post_data or "") == shown
    page.wait_for_url(JOB_PAGE)


def test_a_predictor_is_sent_with_policies_that_predict(site: str, look: Look, ada: User) -> None:
    page = look(site, user=ada)
    page.goto("/jobs/new/")
    policy, predictor = page.get_by_label("Batching"), page.get_by_label("Predictor")
    predictor.select_option("narx")
    sent = []
    for name in ("lb-bsp-cpu", "lb-bsp-gpu", "uniform"):
        policy.select_option(name)
        expect(predictor).to_be_visible(visible=name == "lb-bsp-cpu")
        sent.append(json.loads(page.locator("#preview").text_content() or "")["synchronization"]["batching"])
    assert sent == [{"name": "lb-bsp-cpu", "predictor": "narx"}, {"name": "lb-bsp-gpu"}, {"name": "uniform"}]


def test_a_double_click_submits_once(site: str, look: Look, ada: User) -> None:
    page = look(site, user=ada)
    page.goto("/jobs/new/")
    page.locator("#submit-button").dblclick()
    page.wait_for_url(JOB_PAGE)
    job = Job.objects.get()
    assert (job.name, page.url) == ("digits", f"{site}/jobs/{job.pk}/")


def test_an_error_of_the_server_lands_on_its_field(site: str, look: Look, ada: User, errors: list[str]) -> None:
    page = look(site, user=ada)
    page.goto("/jobs/new/")
    field = page.get_by_label("Batch size per worker")
    field.fill("many")
    page.locator("#submit-button").click()
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(field).to_be_focused()
    expect(page.locator('[data-field="batch_size"] .field-error')).to_have_text("Expected `int`, got `str`")
    alert = page.get_by_role("alert")
    expect(alert.locator("strong")).to_have_text(re.compile(r"\w"))
    expect(alert.get_by_role("button", name=re.compile("^Copy trace id [0-9a-f]"))).to_be_visible()
    field.fill("64")
    expect(field).not_to_have_attribute("aria-invalid", "true")
    assert Job.objects.count() == 0
    # The browser itself notes that a request was answered with 400.
    assert len(errors) == 1
    errors.clear()


def test_a_duplicate_begins_with_the_same_spec(site: str, look: Look, ada: User) -> None:
    job = factories.make_job(user=ada, spec=factories.spec(batch_size=32))
    page = look(site, user=ada)
    page.goto(f"/jobs/{job.pk}/")
    page.locator("#duplicate").click()
    expect(page.get_by_label("Batch size per worker")).to_have_value("32")


def test_the_fields_of_the_form_are_as_wide_as_one_another(site: str, look: Look, ada: User) -> None:
    page = look(site, user=ada)
    page.goto("/jobs/new/")
    widths = page.locator(".fields > .field").evaluate_all("all => all.map(each => each.offsetWidth).filter(Boolean)")
    assert max(widths) - min(widths) <= 1


def test_a_simulated_policy_is_saved_as_a_job(site: str, look: Look, ada: User, simulation: Simulation) -> None:
    page = look(site, user=ada)
    page.goto(f"/simulations/{simulation.pk}/")
    page.get_by_role("link", name="Save as job: lb-bsp-linear").click()
    expect(page.get_by_label(f"lb-bsp-linear of simulation #{simulation.pk}")).to_be_checked()
    expect(page.locator("#left")).to_contain_text("The machines are yours: 4 workers and 2 servers were simulated")
    expect(page.get_by_label("Batching")).to_have_value("lb-bsp-linear")
    expect(page.get_by_label("Maximum iterations")).to_have_value("200")
    blank = "all => all.filter(each => each.selectedIndex < 0).map(each => each.name)"
    assert page.locator("#submit-form select").evaluate_all(blank) == []
    page.get_by_label("Machine labels").fill("class=fast")
    page.locator("#submit-button").click()
    page.wait_for_url(JOB_PAGE)
    job = Job.objects.get(simulation=None)
    assert (job.name, job.spec["labels"], job.spec["seed"]) == ("demo lb-bsp-linear", {"class": "fast"}, 3)
    assert job.spec["synchronization"] == simulation.runs.get(policy="lb-bsp-linear").spec["synchronization"]


def test_stopping_asks_first_and_names_the_job(site: str, look: Look, ada: User) -> None:
    job = Job.objects.create(name="digits", spec=factories.spec(), submitted_by=ada)
    page = look(site, user=ada)
    page.goto(f"/jobs/{job.pk}/")
    page.locator("#stop").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"Stop job #{job.pk}, digits?")
    page.get_by_role("button", name="Keep it running").click()
    expect(dialog).to_be_hidden()
    assert AuditEntry.objects.count() == 0
    page.locator("#stop").click()
    page.get_by_role("button", name=f"Stop job #{job.pk}").click()
    expect(page.locator("#toasts")).to_have_text(f"Stop of job #{job.pk} requested. Audit")
    assert AuditEntry.objects.get().action == "job-stop"
