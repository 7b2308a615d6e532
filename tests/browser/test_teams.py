"""Teams in a browser: members, limits and owners are changed in dialogs, and the page shows it at once."""

import pytest
from django.contrib.auth.models import Group, User
from playwright.sync_api import expect

from controlplane.people.models import Membership, Quota, Team
from controlplane.people.teams import team_create
from tests.browser.conftest import Look, axe_findings
from tests.frontend import factories
from tests.support.rows import online_agent

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(("theme", "width"), [("light", 1440), ("dark", 400)])
def test_an_admin_makes_a_team_with_members_limits_and_a_machine(
    site: str, look: Look, ada: User, errors: list[str], theme: str, width: int
) -> None:
    agent = online_agent("m1")
    User.objects.create_user("ina").groups.add(Group.objects.get_or_create(name="viewer")[0])
    page = look(site, user=ada, theme=theme, width=width)
    page.goto("/teams/")
    page.locator("#team-new").click()
    dialog = page.locator("#team-dialog")
    dialog.get_by_label("Name").fill("vision")
    dialog.get_by_role("button", name="Create team").click()
    page.wait_for_url("**/teams/*/")
    team = Team.objects.get(name="vision")
    page.locator("#member-new").click()
    dialog = page.locator("#member-dialog")
    dialog.get_by_label("User").fill("nobody")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("no user that you may see exists")
    dialog.get_by_label("User").fill("ina")
    dialog.get_by_label("Role").select_option("operator")
    assert axe_findings(page, within="#member-dialog") == []
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_be_hidden()
    expect(page.locator("#team-detail")).to_contain_text("ina")
    member = Membership.objects.get(team=team)
    page.locator(f"#role-{member.pk}").click()
    expect(dialog.get_by_label("User")).to_have_value("ina")
    expect(dialog.get_by_label("User")).not_to_be_editable()
    dialog.get_by_label("Role").select_option("admin")
    dialog.get_by_role("button", name="Save").click()
    expect(page.locator("#team-detail tbody tr").first).to_contain_text("admin")
    page.locator("#team-limits").click()
    dialog = page.locator("#quota-dialog")
    dialog.get_by_label("Jobs").fill("three")
    dialog.get_by_role("button", name="Set limits").click()
    expect(dialog.get_by_role("alert")).to_contain_text("jobs: A valid integer is required.")
    dialog.get_by_label("Jobs").fill("3")
    dialog.get_by_label("Stored models").fill("ten GB")
    dialog.get_by_role("button", name="Set limits").click()
    expect(dialog.get_by_role("alert")).to_contain_text("such as 10 GB")
    dialog.get_by_label("Stored models").fill("10 GB")
    dialog.get_by_role("button", name="Set limits").click()
    expect(page.locator("#team-detail")).to_contain_text("0 of 3")
    expect(page.locator("#team-detail")).to_contain_text("of 10 GB")
    quota = Quota.objects.get(team=team)
    assert (quota.jobs, quota.stored_bytes) == (3, 10**10)
    page.locator("#team-limits").click()
    expect(dialog.get_by_label("Stored models")).to_have_value("10 GB")
    page.keyboard.press("Escape")
    page.locator("#machine-give").click()
    page.locator("#machine-dialog").get_by_role("button", name="Assign machine").click()
    expect(page.locator(f"#release-{agent.pk}")).to_be_visible()
    page.locator("#team-delete").click()
    page.locator("#ask-confirm").click()
    expect(page.locator("#toasts")).to_contain_text("owns 1 machine,")
    assert axe_findings(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    errors[:] = [each for each in errors if not any(f"status of {code}" in each for code in (400, 404, 409))]


def test_a_job_is_submitted_for_the_chosen_team(site: str, look: Look, ada: User) -> None:
    for name in ("speech", "vision"):
        team_create(name=name, actor="root")
    page = look(site, user=ada)
    page.goto("/jobs/new/")
    page.locator("#team").select_option("vision")
    expect(page.locator("#curl")).to_contain_text("/api/v1/jobs?team=vision' ")
    page.locator("#submit-button").click()
    page.wait_for_url("**/jobs/*/")
    expect(page.locator("#job-header")).to_contain_text("for team vision")
    page.goto("/jobs/")
    page.locator("#team-filter").select_option("speech")
    expect(page.locator("#jobs-table")).to_contain_text("No job of team speech is listed.")
    expect(page).to_have_url(f"{site}/jobs/?q=&state=&team=speech")


def test_a_simulation_is_started_for_the_chosen_team(site: str, look: Look, ada: User) -> None:
    team_create(name="vision", actor="root")
    factories.demo_job(user=ada)
    page = look(site, user=ada)
    page.goto("/simulations/")
    page.locator("#team").select_option("vision")
    page.locator("#simulate-button").click()
    page.wait_for_url("**/simulations/*/")
    expect(page.locator("#simulation")).to_contain_text("for team vision")
