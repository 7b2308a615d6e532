"""Accounts in a browser: an admin switches one off and on, and the page shows it at once."""

import pytest
from django.contrib.auth.models import Group, User
from playwright.sync_api import expect

from controlplane.people.tokens import token_create
from tests.browser.conftest import Look, axe_findings

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(("theme", "width"), [("light", 1440), ("dark", 400)])
def test_an_account_is_switched_off_and_on(site: str, look: Look, ada: User, theme: str, width: int) -> None:
    eve = User.objects.create_user("eve@example.org", password="a-long-and-plain-sentence")
    eve.groups.add(Group.objects.get_or_create(name="operator")[0])
    token_create(user=eve, name="nightly", actor="eve@example.org")
    page = look(site, user=ada, theme=theme, width=width)
    page.goto("/account/")
    page.get_by_role("link", name="Show all users, their tokens and sessions").click()
    row = page.locator("section", has=page.locator("#users-title")).locator("tbody tr", has_text="eve@example.org")
    expect(row).to_contain_text("operator")
    page.locator(f"#disable-{eve.pk}").click()
    expect(page.locator("#ask-dialog")).to_contain_text("Its tokens (1) are revoked")
    assert axe_findings(page, within="#ask-dialog") == []
    page.locator("#ask-confirm").click()
    expect(row).to_contain_text("disabled")
    expect(page.locator("#account-tables")).not_to_contain_text("nightly")
    page.locator(f"#enable-{eve.pk}").click()
    page.locator("#ask-confirm").click()
    expect(row).not_to_contain_text("disabled")
    assert axe_findings(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
