"""Signing in at an identity provider in a real browser, there and back."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from controlplane.people.models import Identity
from tests.browser.conftest import NARROW, WIDE, Look, axe_findings
from tests.support.oidc import running_provider

pytestmark = pytest.mark.browser


def test_someone_signs_in_at_the_provider_and_is_led_back(
    site: str, look: Look, settings: Any, roles: None, tmp_path: Path, errors: list[str]
) -> None:
    settings.PACELINE_URL = site
    with running_provider(tmp_path) as provider:
        settings.OIDC, settings.LOCAL_ACCOUNTS = provider.configured(PACELINE_OIDC_LABEL="Example ID"), False
        provider.knows("s-1", preferred_username="ada", groups=["ml"])
        page = look(site)
        page.goto("/jobs/")
        expect(page.get_by_text("Emergency account")).to_be_visible()
        expect(page.get_by_label("Password")).to_be_hidden()
        page.get_by_role("link", name="Sign in with Example ID").click()
        page.get_by_placeholder("sub").fill("s-1")
        page.get_by_role("button", name="Authorize").click()
        page.wait_for_url(re.compile(r"/jobs/$"))
        expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()
        page.goto("/account/")
        expect(page.get_by_role("combobox", name="Role").locator("option")).to_have_text(["viewer", "operator"])
    errors.clear()  # the provider's own page misses a style sheet
    assert Identity.objects.get().user.username == "ada"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_who_is_refused_reads_why(
    site: str, look: Look, settings: Any, roles: None, tmp_path: Path, errors: list[str], theme: str, width: int
) -> None:
    settings.PACELINE_URL = site
    with running_provider(tmp_path) as provider:
        settings.OIDC = provider.configured(PACELINE_OIDC_LABEL="Example ID")
        provider.knows("s-2", preferred_username="eve", groups=["cooks"])
        page = look(site, theme=theme, width=width)
        page.goto("/login/")
        assert axe_findings(page) == []
        page.screenshot(path=tmp_path / "login.png")
        page.get_by_role("link", name="Sign in with Example ID").click()
        page.get_by_placeholder("sub").fill("s-2")
        page.get_by_role("button", name="Authorize").click()
        expect(page.get_by_role("heading", name="You are not signed in")).to_be_visible()
        expect(page.get_by_text("Found: cooks.")).to_be_visible()
        assert axe_findings(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.screenshot(path=tmp_path / "refused.png")
    errors.clear()  # the browser itself notes the 403, and what the provider's page is missing
