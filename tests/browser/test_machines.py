"""Machines in a browser: what an operator does there."""

import os
from contextlib import suppress

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Error, expect

from controlplane.fleet.machine_tests import far_end_answered, preflight_ended
from controlplane.fleet.models import Agent, MachineTest
from controlplane.jobs.models import Job
from controlplane.people.quotas import quota_set
from controlplane.people.teams import team_create
from controlplane.protocol.machine_tests import Listening, MachineTested, MeasuredLink
from tests.browser.conftest import Look, axe_findings
from tests.frontend import factories
from tests.support.rows import submitted_job

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(("theme", "width"), [("light", 1440), ("dark", 400)])
def test_a_drain_is_previewed_and_shown_on_the_machine(
    site: str, look: Look, ada: User, theme: str, width: int
) -> None:
    factories.demo_job(user=ada)
    agent = Agent.objects.order_by("pk")[0]
    page = look(site, user=ada, theme=theme, width=width)
    page.goto("/workers/")
    page.locator(f"#drain-{agent.pk}").click()
    dialog = page.locator("#drain-dialog")
    expect(dialog).to_contain_text(f"Drain {agent.name}?")
    expect(dialog).to_contain_text("w0 of job #")
    assert axe_findings(page, within="#drain-dialog") == []
    dialog.get_by_role("button", name=f"Drain {agent.name}").click()
    expect(dialog).to_be_hidden()
    page.goto(f"/workers/{agent.pk}/")
    expect(page.locator("#machine-scheduling")).to_contain_text("draining")
    assert axe_findings(page, within="#machine-scheduling") == []
    assert Agent.objects.get(pk=agent.pk).scheduling == "draining"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(("theme", "width"), [("light", 1440), ("dark", 400)])
def test_a_machine_is_tested_in_two_clicks(site: str, look: Look, ada: User, theme: str, width: int) -> None:
    factories.demo_job(user=ada)
    Agent.objects.update(can_test=True, server_slots=1)
    agent, other = Agent.objects.filter(state="online").order_by("pk")[:2]
    page = look(site, user=ada, theme=theme, width=width)
    page.goto(f"/workers/{agent.pk}/")
    page.locator("#test-machine").click()
    dialog = page.locator("#ask-dialog")
    expect(dialog).to_contain_text(f"Test {agent.name}?")
    expect(dialog).to_contain_text("Jobs are running on it: the test slows them down")
    assert axe_findings(page, within="#ask-dialog") == []
    dialog.get_by_role("button", name=f"Test {agent.name}").click()
    expect(dialog).to_be_hidden()
    row = MachineTest.objects.get()
    assert (row.agent, row.forced, row.requested_by) == (agent, True, "ada")
    far_end_answered(other.pk, Listening(number=2, test=row.pk, port=4711))
    link = MeasuredLink(machine=other.name, round_trip_s=0.0004, bytes_per_s=1.1e9)
    numbers = {"cpu_flops": 8e10, "memory_bytes_per_s": 2.1e10, "seconds": 4.2}
    assert preflight_ended(agent.pk, MachineTested(number=3, test=row.pk, links=[link], **numbers))
    page.goto(f"/workers/{agent.pk}/")
    section = page.locator("#machine-tests")
    expect(section).to_contain_text("80 GFLOP/s")
    expect(section).to_contain_text("no other machine of its class was measured")
    expect(section).to_contain_text("Unreliable: processes of jobs ran on the machine meanwhile.")
    assert axe_findings(page, within="#machine-tests") == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if folder := os.environ.get("PACELINE_SCREENSHOTS"):
        section.screenshot(path=f"{folder}/machine-tests-{theme}.png")


def test_the_dialog_of_a_drain_shows_nothing_of_another_machine(
    site: str, look: Look, ada: User, errors: list[str]
) -> None:
    """Neither while the preview is on its way, nor when one that was asked for earlier comes last."""
    factories.demo_job(user=ada)
    first, second = Agent.objects.order_by("pk")[:2]
    page = look(site, user=ada)
    page.goto("/workers/")
    dialog, held = page.locator("#drain-dialog"), []
    page.locator(f"#drain-{first.pk}").click()
    expect(dialog).to_contain_text(f"Drain {first.name}?")
    dialog.get_by_role("button", name="Cancel").click()
    page.route(f"**/workers/{second.pk}/drain/", lambda route: held.append(route))
    page.locator(f"#drain-{second.pk}").click()
    expect(dialog).to_contain_text("Loading the drain preview")
    expect(dialog).not_to_contain_text(first.name)
    assert page.locator("#drain-confirm").count() == 0
    dialog.get_by_role("button", name="Cancel").click()
    page.locator(f"#drain-{first.pk}").click()
    expect(dialog).to_contain_text(f"Drain {first.name}?")
    with suppress(Error):  # the page may have given it up already
        held[0].continue_()
    page.wait_for_load_state("networkidle")
    expect(dialog).to_contain_text(f"Drain {first.name}?")
    dialog.get_by_role("button", name="Cancel").click()
    page.route(f"**/workers/{first.pk}/drain/", lambda route: route.fulfill(status=503))
    page.locator(f"#drain-{first.pk}").click()
    expect(dialog).to_contain_text("This could not be loaded (status 503)")
    expected = ("503", "htmx:sendAbort", "htmx:afterRequest", "htmx:responseError", "Response Status Error")
    errors[:] = [each for each in errors if not any(word in each for word in expected)]


def test_one_click_reports_why_a_job_does_not_start(site: str, look: Look, ada: User) -> None:
    job = submitted_job(ada, labels={"gpu": "a100"})
    assert Job.objects.get(pk=job.pk).state == "submitted"
    page = look(site, user=ada)
    page.goto("/")
    page.get_by_role("link", name="digits").first.click()
    expect(
        page.get_by_text("none of the 0 online", exact=False)
        .or_(page.get_by_text("no machine is online", exact=False))
        .first
    ).to_be_visible()


@pytest.mark.parametrize(("theme", "width"), [("light", 1440), ("dark", 400)])
def test_a_waiting_job_is_put_first_on_the_page_of_the_queue(
    site: str, look: Look, ada: User, theme: str, width: int
) -> None:
    jobs = [submitted_job(ada, name=name) for name in ("one", "two", "three")]
    team_create(name="vision", weight=2.0, actor="root")
    quota_set(user=ada, actor="root", jobs=5)
    page = look(site, user=ada, theme=theme, width=width)
    page.goto("/jobs/")
    page.get_by_role("link", name="Queue").click()
    rows = page.locator("#queue-tables tbody").first.locator("tr")
    expect(rows.first).to_contain_text("one")
    page.locator(f"#first-{jobs[2].pk}").click()
    expect(rows.first).to_contain_text("three")
    expect(page.locator("#queue-tables")).to_contain_text("user ada")
    assert axe_findings(page, within="#queue-tables") == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
