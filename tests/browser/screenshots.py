"""Pictures of every page, full, empty and failed, in both themes and two widths: ``make screenshots``.

Not a test: pytest collects it only where it is named. The pictures lie under ``var/screenshots``.
"""

from pathlib import Path

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page

from controlplane.core.states import JobState
from controlplane.jobs.models import Job
from controlplane.jobs.services import audit
from frontend.tabs import TABS
from tests.browser.conftest import NARROW, WIDE, Look
from tests.frontend import factories

FOLDER = Path(__file__).parents[2] / "var" / "screenshots"
HEIGHT = 900
SETTLE_MS = 400
"""For fonts and the last frame of a chart."""


def shoot(page: Page, width: int, path: str, name: str) -> None:
    """One picture of the whole page, its charts drawn: those out of view are not, so the window is made as tall."""
    page.set_viewport_size({"width": width, "height": HEIGHT})
    page.goto(path)
    page.wait_for_load_state("networkidle")
    page.set_viewport_size({"width": width, "height": page.evaluate("document.documentElement.scrollHeight") + HEIGHT})
    for figure in page.locator("plotly-figure").all():
        figure.locator(".main-svg, .figure-empty:not([hidden])").first.wait_for()
    page.set_viewport_size(
        {"width": width, "height": page.evaluate("document.querySelector('main').offsetHeight") + 120}
    )
    page.wait_for_timeout(SETTLE_MS)
    FOLDER.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=FOLDER / f"{name}.png", full_page=True)


@pytest.mark.browser
@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page(site: str, look: Look, ada: User, theme: str, width: int) -> None:
    page = look(site, user=ada, theme=theme, width=width)
    ending = f"{theme}-{width}"
    for path, name in (("/", "overview"), ("/jobs/", "jobs"), ("/workers/", "machines")):
        shoot(page, width, path, f"{name}-empty-{ending}")
    waiting = Job.objects.create(name="waits", spec=factories.spec(workers=8), submitted_by=ada)
    failed = factories.make_job(user=ada, state=JobState.FAILED, reason="w2 ended with status 1; no checkpoint")
    factories.make_reports(failed, [factories.Pace(shares=factories.EVEN)] * 8)
    full = factories.demo_job(user=ada)
    for path, name in (("/", "overview"), ("/jobs/", "jobs"), ("/workers/", "machines"), ("/jobs/new/", "submit")):
        shoot(page, width, path, f"{name}-{ending}")
    even = factories.make_job(user=ada, name="even", spec=factories.spec(policy="uniform"))
    factories.make_reports(even, [factories.Pace(shares=factories.EVEN)] * 60)
    factories.make_scores(even, every=20, until=60, seconds=0.26)
    audit(actor="ada", action="job-submit", subject=f"job {full.pk}", detail={"name": "digits"})
    shoot(page, width, "/audit/", f"audit-{ending}")
    shoot(page, width, "/compare/", f"compare-pick-{ending}")
    shoot(page, width, f"/compare/?jobs={even.pk},{full.pk}", f"compare-{ending}")
    for job, kind in ((waiting, "empty"), (failed, "failed"), (full, "full")):
        for tab in TABS:
            shoot(page, width, f"/jobs/{job.pk}/?tab={tab}", f"job-{tab}-{kind}-{ending}")
