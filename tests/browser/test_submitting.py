"""Submitting and stopping from pages: what the server says lands where it belongs, and nothing happens twice."""

import json
import re

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from controlplane.jobs.models import AuditEntry, Job
from controlplane.telemetry.models import Simulation
from tests.browser.conftest import Look, axe_findings
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


def test_parameters_belong_to_their_policy(site: str, look: Look, ada: User) -> None:
    page = look(site, user=ada)
    page.goto("/jobs/new/")
    policy, predictor = page.get_by_label("Batching", exact=True), page.get_by_label("predictor", exact=True)
    expect(predictor).to_have_value("ema")
    expect(page.locator("#h-synchronization\\.batching\\.name")).to_contain_text(
        "Shares proportional to predicted speed"
    )
    sent = []
    for name in ("lb-bsp-cpu", "lb-bsp-gpu", "lb-bsp-linear"):
        if name != "lb-bsp-cpu":
            policy.select_option(name)
        expect(predictor).to_have_count(1 if name == "lb-bsp-cpu" else 0)
        if name == "lb-bsp-linear":
            page.get_by_text("Parameters of batching").click()
            expect(page.locator("#h-synchronization\\.batching\\.forgetting")).to_contain_text("0.5 to 1; default 0.98")
            page.get_by_label("forgetting").fill("0.9")
        sent.append(json.loads(page.locator("#preview").text_content() or "")["synchronization"]["batching"])
    assert sent == [
        {"name": "lb-bsp-cpu", "predictor": "ema"},
        {"name": "lb-bsp-gpu"},
        {"name": "lb-bsp-linear", "forgetting": 0.9},
    ]


def test_data_sets_and_options_are_those_of_the_workload(site: str, look: Look, ada: User) -> None:
    page = look(site, user=ada)
    page.goto("/jobs/new/")
    page.get_by_label("Workload", exact=True).fill("resnet")
    names = "all => all.map(each => each.value)"
    offered = page.locator("[id='l-workload.dataset'] option").evaluate_all(names)
    assert "cifar-10" in offered
    assert "wine" not in offered
    page.get_by_label("Data set", exact=True).fill("cifar-like")
    page.get_by_text("Options of the data set").click()
    page.locator("[data-parameters='workload.data'] input").first.wait_for()
    page.get_by_label("Workload", exact=True).fill("package.module:factory")
    page.locator("[data-parameters='workload.options'] [data-free]").fill("depth=3, wide=true")
    shown = json.loads(page.locator("#preview").text_content() or "")
    assert shown["workload"]["options"] == {"depth": 3, "wide": True}


def test_yaml_fills_the_form(site: str, look: Look, ada: User, errors: list[str]) -> None:
    page = look(site, user=ada)
    page.goto("/jobs/new/")
    page.get_by_role("button", name="Paste YAML").click()
    page.locator("#yaml-text").fill("name: pasted\nworkers: many\nworkload: {name: wine, dataset: wine}")
    page.get_by_role("button", name="Fill the form").click()
    expect(page.locator("#yaml-alert")).to_contain_text("expected")
    assert axe_findings(page, within="#yaml-dialog") == []
    text = "name: pasted\nworkers: 6\nworkload: {name: softmax-regression, dataset: wine}\nstop: {iterations: 9}"
    page.locator("#yaml-text").fill(text + "\nbatch_size: 8\nsynchronization: {barrier: {name: ssp, staleness: 3}}")
    page.get_by_role("button", name="Fill the form").click()
    expect(page.locator("#yaml-dialog")).to_be_hidden()
    expect(page.get_by_label("Workers", exact=True)).to_have_value("6")
    expect(page.get_by_label("staleness")).to_have_value("3")
    assert len(errors) == 1
    errors.clear()


def test_what_cannot_start_is_reported_while_one_types(site: str, look: Look, ada: User) -> None:
    factories.make_agents(4)
    page = look(site, user=ada)
    page.goto("/jobs/new/")
    page.get_by_label("Workers", exact=True).fill("9")
    expect(page.locator("#submit-finding")).to_contain_text("If submitted now, this job cannot be scheduled: needs 9")
    page.get_by_label("Workers", exact=True).fill("4")
    expect(page.locator("#submit-finding")).to_be_hidden()


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
    expect(page.locator("#left")).to_contain_text("4 workers and 2 servers were simulated.")
    expect(page.get_by_label("Batching", exact=True)).to_have_value("lb-bsp-linear")
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
