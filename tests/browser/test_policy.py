"""Every page under the content security policy: nothing is blocked, and what is inline would be."""

from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from controlplane.jobs.models import Job
from controlplane.telemetry.models import Simulation
from tests.browser.conftest import Look
from tests.browser.test_pages import job, visited  # noqa: F401

pytestmark = pytest.mark.browser

COLLECT = """() => {
  window.violations = [];
  document.addEventListener("securitypolicyviolation", event =>
    window.violations.push(`${event.effectiveDirective} ${event.blockedURI} ${event.sample} ${event.sourceFile}`));
}"""


def watched(page: Page) -> Page:
    page.add_init_script(f"({COLLECT})()")
    return page


def violations(page: Page) -> list[str]:
    found: list[str] = page.evaluate("window.violations")
    return found


def test_no_page_violates_the_policy(
    site: str,
    look: Look,
    ada: User,
    job: Job,  # noqa: F811
    simulation: Simulation,
) -> None:
    User.objects.update(is_staff=True)
    page = watched(look(site, user=ada))
    warnings: list[str] = []
    page.on("console", lambda said: warnings.append(said.text) if said.type == "warning" else None)
    found = {path: violations(page) for path in visited(page, job)}
    for path in ("/glossary/", "/api/v1/docs", "/admin/", "/admin/jobs/job/", "/admin/auth/user/add/"):
        page.goto(path, wait_until="networkidle")
        found[path] = violations(page)
    signed_out = watched(look(site))
    signed_out.goto("/login/")
    found["/login/"] = violations(signed_out)
    assert {path: wrong for path, wrong in found.items() if wrong} == {}
    assert {said for said in warnings if "header" in said} == set(), "a header that browsers do not know"


def test_the_documentation_of_the_api_is_drawn(site: str, look: Look, ada: User) -> None:
    page = look(site, user=ada)
    page.goto("/api/v1/docs")
    expect(page.get_by_text("/api/v1/jobs/check")).to_be_visible()


def test_inline_code_is_blocked(site: str, look: Look, errors: list[str]) -> None:
    page = watched(look(site))
    page.goto("/login/")
    page.evaluate(
        """() => {
          document.body.insertAdjacentHTML("beforeend",
            "<p style='color: red'>x</p><img src='x:' onerror='window.ran = 1'>");
          document.body.append(Object.assign(document.createElement("script"), {textContent: "window.ran = 1"}));
        }"""
    )
    page.wait_for_function("() => window.violations.length >= 3")
    assert page.evaluate("window.ran") is None
    assert urlsplit(page.url).path == "/login/"
    errors.clear()
