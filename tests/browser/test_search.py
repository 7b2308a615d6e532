"""The search dialog from anywhere by one key, views under a name, and charts on the overview."""

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from controlplane.jobs.models import Job
from frontend.models import SavedView
from tests.browser.conftest import Look, axe_findings
from tests.frontend import factories

pytestmark = pytest.mark.browser


@pytest.fixture
def job(ada: User, redis_url: str) -> Job:
    return factories.demo_job(user=ada)


def test_a_machine_is_two_keys_and_a_few_letters_away(site: str, look: Look, ada: User, job: Job) -> None:
    page = look(site, user=ada)
    page.goto(f"/jobs/{job.pk}/?tab=processes")
    page.keyboard.press("/")
    dialog = page.locator("#search-dialog")
    expect(dialog).to_contain_text("Your saved views appear here.")
    page.keyboard.type("machine-")
    expect(dialog.locator(".match")).to_have_count(4)
    assert axe_findings(page, within="#search-dialog") == []
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(dialog.locator(".match").nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("machine-1")


def test_a_view_is_saved_and_found_again(site: str, look: Look, ada: User, job: Job) -> None:
    page = look(site, user=ada)
    page.goto("/jobs/?state=running&hide=accuracy")
    page.locator("#search-open").click()
    page.get_by_label("Save this page's view as").fill("running ones")
    page.get_by_role("button", name="Save view").click()
    expect(page.locator("#toasts")).to_contain_text("press / to find running ones")
    page.goto("/system/")
    page.keyboard.press("/")
    page.get_by_role("link", name="running ones").click()
    expect(page).to_have_url(f"{site}/jobs/?state=running&hide=accuracy")


def test_a_chart_is_pinned_to_the_overview_and_taken_off(site: str, look: Look, ada: User, job: Job) -> None:
    page = look(site, user=ada)
    page.goto(f"/jobs/{job.pk}/?ranks=3")
    figure = page.locator("#figure-batch-size")
    figure.locator(".main-svg").first.wait_for()
    figure.get_by_text("Export", exact=True).click()
    figure.get_by_role("button", name="Pin to my overview").click()
    expect(page.locator("#toasts")).to_contain_text("Batch size is pinned to your overview.")
    page.goto("/")
    page.locator("#pins .main-svg").first.wait_for()
    assert page.evaluate("document.querySelector('#pins .plot')._fullData.map(each => each.name)") == ["w3"]
    assert axe_findings(page, within="#pins") == []
    page.get_by_role("button", name="Unpin").click()
    expect(page.locator("#pins plotly-figure")).to_have_count(0)
    assert not SavedView.objects.exists()
