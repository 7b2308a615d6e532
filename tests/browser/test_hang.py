"""An iteration that does not end, on its job's page: who is late, what it does, and where to look."""

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import expect

from controlplane.core.commands import RaiseFlag
from controlplane.jobs.models import Job
from controlplane.protocol.messages import Stalled
from controlplane.telemetry.models import Cursor
from tests.browser.conftest import LOOKS, NARROW, WIDE, Look, axe_findings
from tests.core.attached import Attached
from tests.core.story import of
from tests.frontend import factories

pytestmark = pytest.mark.browser


def hang() -> RaiseFlag:
    """What the engine says once rank 0 is in the sum, and rank 1 still computes."""
    story = Attached(workers=4).running()
    story.iterate_at(60, *[100.0] * 4)
    for rank, place in ((0, "sum"), (1, "compute")):
        number = story.next_number(rank)
        story.say(rank, Stalled(number=number, iteration=60, place=place, open_s=34.0, usual_s=0.5))
    (flag,) = of(RaiseFlag, story.commands)
    return flag


@pytest.mark.parametrize(("theme", "width"), [("light", WIDE), ("dark", NARROW)])
def test_a_rank_that_hangs_is_named_on_the_page_until_its_iteration_ends(
    site: str, look: Look, ada: User, theme: str, width: int
) -> None:
    job, flag = factories.attached_job(user=ada), hang()
    row = factories.make_flag(
        job,
        key=flag.flag,
        rank=flag.rank,
        kind=flag.kind,
        persistence=flag.persistence,
        sentence=flag.reason,
        evidence=flag.evidence,
        opened_at=timezone.now(),
    )
    page = look(site, user=ada, theme=theme, width=width)
    page.goto(f"/jobs/{job.pk}/")
    expect(page.locator("#job-lanes .verdict")).to_contain_text("An iteration has not completed")
    finding = page.get_by_text("w1 has been computing for 34 s, and the other ranks wait for it").first
    expect(finding).to_be_visible()
    expect(page.locator("#job-flags")).to_contain_text("Inspect its stack on gpu-1 (py-spy dump --pid 101)")
    lane = page.locator("#job-lanes tbody tr").filter(has=page.locator("th", has_text="w1"))
    expect(lane.locator(".mark-flag")).to_be_visible()
    assert axe_findings(page, rules=LOOKS) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    expect(page.get_by_role("button", name="Exclude")).to_have_count(0)  # its launcher owns it
    row.closed_at, row.closing_reason = timezone.now(), "iteration 60 has ended"
    row.save()
    Job.objects.filter(pk=job.pk).update(iteration=61)
    Cursor.objects.filter(job=job).update(position="61-1")  # as ingest says that there is something new
    page.reload()
    expect(page.locator("#job-lanes .verdict")).to_contain_text("Balanced")
    expect(page.locator("#job-flags")).to_contain_text("iteration 60 has ended")
    expect(lane.locator(".mark-flag")).to_have_count(0)
