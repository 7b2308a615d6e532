"""Alerts in a browser: the badge, notifications, and the forms."""

import json
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import expect

from controlplane.alerts.models import Alert, Rule, Silence, Target
from controlplane.runtime import ticks
from controlplane.runtime.redis import shared
from tests.alerts.rows import saved_rule, webhook
from tests.browser.conftest import Look

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

KEEP = """
window.shown = [];
window.Notification = class {
  static permission = "granted";
  static async requestPermission() { return "granted"; }
  constructor(title, options) { window.shown.push({ title, ...options }); }
  addEventListener() {}
};
"""
"""The page's notifications, kept: a browser without a window shows none."""


def fire(name: str, ago_s: float = 0) -> Alert:
    at = timezone.now() - timedelta(seconds=ago_s)
    fields = {"kind": "worker-lost", "severity": "critical", "key": name, "summary": f"{name} was lost"}
    row = Alert.objects.create(rule_name="lost", stage="firing", since=at, seen_at=at, fired_at=at, **fields)
    ticks.publish(shared(), alerts=True)
    return row


def take_refusal(errors: list[str]) -> None:
    """Take out the one 400 that the test asked for; anything else is a fault."""
    refused = [error for error in errors if "status of 400" in error]
    assert len(refused) == 1
    errors.remove(refused[0])


def test_an_alert_that_begins_to_fire_is_counted_and_notified_of_once(site: str, look: Look, ada: User) -> None:
    fire("w0", ago_s=60)
    page = look(site, user=ada)
    page.add_init_script(KEEP)
    page.goto("/alerts/")
    expect(page.locator("#alerts-badge")).to_have_text("1")
    expect(page.locator("#freshness")).to_have_attribute("data-state", "live")
    page.get_by_role("button", name="Notify me in this browser").click()
    expect(page.get_by_role("button", name="Notifications are on")).to_be_visible()
    row = fire("w1")
    page.wait_for_function("() => window.shown.length === 1")
    assert page.evaluate("window.shown") == [
        {"title": "lost (critical)", "body": "w1 was lost", "tag": f"paceline-alert-{row.pk}"}
    ]
    expect(page.locator("#alerts-badge")).to_have_text("2")
    expect(page.locator("#alerts-tables")).to_contain_text("w1 was lost")
    ticks.publish(shared(), alerts=True)
    page.reload()
    expect(page.locator("#alerts-badge")).to_have_text("2")
    assert page.evaluate("window.shown") == []


def test_a_rule_and_a_target_are_made_changed_and_silenced(site: str, look: Look, ada: User, errors: list[str]) -> None:
    page = look(site, user=ada)
    page.goto("/alerts/")
    page.locator("#default-rules").click()
    expect(page.locator("#rules-title")).to_be_visible()
    expect(page.locator("[id^=edit-rule-]")).to_have_count(11)
    page.locator("#target-new").click()
    page.locator("#target-form [name=name]").fill("oncall")
    page.locator("#target-form [name=url]").fill("http://169.254.169.254/x")
    page.get_by_role("button", name="Save target").click()
    expect(page.locator("#target-alert")).to_contain_text("link-local")
    page.locator("#target-form [name=url]").fill("https://hooks.example.org/x")
    page.get_by_role("button", name="Save target").click()
    expect(page.locator("#target-secret-text")).not_to_be_empty()
    page.get_by_role("button", name="Close").last.click()
    assert Target.objects.get().name == "oncall"
    expect(page.locator("[id^=test-target-]")).to_have_count(1)
    waits = Rule.objects.get(kind="waiting")
    page.locator(f"#edit-rule-{waits.pk}").click()
    form = page.locator("#rule-form")
    expect(form.locator("[name=parameter]")).to_have_value("30")
    form.locator("[name=parameter]").fill("45")
    form.locator("[name=where]").fill("job=nightly, gpu=a100")
    form.get_by_label("oncall").check()
    page.get_by_role("button", name="Save rule").click()
    expect(page.locator("#rule-dialog")).to_be_hidden()
    waits.refresh_from_db()
    document = waits.document
    assert (document.parameters, document.where, document.targets) == (
        {"share": 0.45},
        {"job": "nightly", "gpu": "a100"},
        ["oncall"],
    )
    Alert.objects.filter(pk=fire("w1").pk).update(rule_name=waits.name, labels={"worker": "w1"})
    page.reload()
    page.locator("[id^=silence-]").click()
    page.locator("#ask-choice select").select_option("1 day")
    page.locator("#ask-confirm").click()
    expect(page.locator("#silences-title")).to_be_visible()
    silence = Silence.objects.get()
    assert (silence.rule, silence.labels, silence.created_by) == (waits, {"worker": "w1"}, "ada")
    take_refusal(errors)


def test_an_update_of_the_page_leaves_an_open_rule_as_it_is(site: str, look: Look, ada: User) -> None:
    webhook("https://hooks.example.org/x", name="oncall")
    webhook("https://hooks.example.org/y", name="second")
    row = saved_rule(targets=["oncall"])
    page = look(site, user=ada)
    page.goto("/alerts/")
    expect(page.locator("#freshness")).to_have_attribute("data-state", "live")
    page.locator(f"#edit-rule-{row.pk}").click()
    form = page.locator("#rule-form")
    expect(form.get_by_label("oncall")).to_be_checked()
    form.get_by_label("second").check()
    webhook("https://hooks.example.org/z", name="third")
    fire("w1")
    expect(page.locator("#alerts-tables")).to_contain_text("w1 was lost")
    page.get_by_role("button", name="Save rule").click()
    expect(page.locator("#rule-dialog")).to_be_hidden()
    assert row.document.targets == ["oncall", "second"]


def test_a_document_is_imported_or_refused_by_its_field(site: str, look: Look, ada: User, errors: list[str]) -> None:
    page = look(site, user=ada)
    page.goto("/alerts/")
    page.get_by_role("button", name="Import YAML").click()
    page.locator("#import-form textarea").fill("rules:\n- {name: a, kind: rain}\n")
    page.get_by_role("button", name="Import", exact=True).click()
    expect(page.locator("#import-alert")).to_contain_text("rules[0].kind: expected one of job-stalled")
    page.locator("#import-form textarea").fill(json.dumps({"rules": [{"name": "a", "kind": "job-done"}]}))
    page.get_by_role("button", name="Import", exact=True).click()
    expect(page.locator("[id^=edit-rule-]")).to_have_count(1)
    take_refusal(errors)
