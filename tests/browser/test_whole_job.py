"""A person's whole way, on a running control plane with machines: sign in, submit, watch, see the straggler, stop."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Look, axe_findings
from tests.support.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.integration]

SLOW_MS = 40_000


def number(page: Page, selector: str) -> float:
    return float((page.locator(selector).text_content() or "0").split()[0].replace("k", "e3").replace("%", ""))


def fact(name: str) -> str:
    return f".facts > div:has(dt:text('{name}')) dd >> nth=0"


def test_a_job_from_the_form_to_its_stop(stack: Stack, look: Look) -> None:
    page = look(stack.url)
    page.goto("/")
    page.get_by_label("User name").fill(stack.user)
    page.get_by_label("Password").fill(stack.password)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#machine-cards")).to_contain_text("online")

    page.get_by_role("link", name="Submit job").click()
    page.get_by_label("Balanced: digits under LB-BSP").check()
    page.get_by_label("Maximum iterations").fill("100000")
    page.get_by_label("Target accuracy").fill("")
    page.get_by_role("button", name="Submit job").click()
    page.wait_for_url(re.compile(r"/jobs/\d+/$"))

    expect(page.locator("h1 .state")).to_have_text("running", timeout=SLOW_MS)
    expect(page.locator("#freshness-chip")).to_have_text("Live")
    watch_numbers_move(page)
    # Its sentence is above the lanes only while it has an impact, which balancing may have ended by now.
    row = page.locator("#job-lanes tbody tr").filter(has=page.locator("th", has_text="w3"))
    expect(row.locator(".mark-flag")).to_be_visible(timeout=SLOW_MS)
    expect(page.locator("#job-lanes .verdict")).to_contain_text("Balanced", timeout=SLOW_MS)
    expect(page.locator("#figure-batch-size .main-svg").first).to_be_visible()
    assert axe_findings(page) == []

    page.locator("#stop").click()
    page.locator("#stop-confirm").click()
    expect(page.locator("h1 .state")).to_have_text("cancelled", timeout=SLOW_MS)
    expect(page.locator("#job-facts")).to_contain_text(f"stopped by {stack.user}")
    expect(page.locator("#freshness-chip")).to_have_text("Finished")

    page.get_by_label("Settings and account").click()
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url(re.compile("/login/$"))


def watch_numbers_move(page: Page) -> None:
    """The iteration rises by itself, and throughput is measured."""
    iteration = fact("Iteration")
    expect(page.locator(iteration)).not_to_have_text(re.compile(r"^0 of"), timeout=SLOW_MS)
    first = number(page, iteration)
    page.wait_for_function(
        "first => parseInt(document.querySelector('.facts > div:nth-child(2) dd').textContent) > first + 5", arg=first
    )
    expect(page.locator(fact("Throughput"))).to_have_text(re.compile("[1-9]"), timeout=SLOW_MS)
