"""The chart of what a script logs, on its job's page; a job that logs nothing has none."""

import math

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from controlplane.telemetry.logged import record_logged
from tests.browser.conftest import LOOKS, NARROW, WIDE, Look, axe_findings
from tests.frontend import factories
from tests.telemetry.logging_reports import report

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(("theme", "width"), [("light", WIDE), ("dark", NARROW)])
def test_each_series_of_a_script_has_a_strip_with_its_name(
    site: str, look: Look, ada: User, theme: str, width: int
) -> None:
    job = factories.attached_job(user=ada)
    page = look(site, user=ada, theme=theme, width=width)
    page.goto(f"/jobs/{job.pk}/")
    expect(page.locator("#figure-convergence")).to_be_visible()
    expect(page.locator("#figure-logged")).to_have_count(0)
    cosine = [0.05 * (1 + math.cos(math.pi * k / 60)) for k in range(60)]
    record_logged(job.pk, [report(k, **{"lr": cosine[k], "gradient norm": 3 / (k + 1)}) for k in range(60)])
    record_logged(job.pk, [report(k, accuracy=1 - 1 / (k + 1)) for k in range(0, 60, 10)])
    page.reload()
    figure = page.locator("#figure-logged")
    figure.scroll_into_view_if_needed()
    expect(figure.locator(".main-svg").first).to_be_visible()
    for name in ("accuracy", "gradient norm", "lr"):
        expect(figure.locator(".annotation", has_text=name)).to_be_visible()
    expect(figure).to_contain_text("Last: accuracy 0.9804, gradient norm 0.05, lr")
    assert axe_findings(page, rules=LOOKS, within="#figure-logged") == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
