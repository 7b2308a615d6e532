"""The page of alerts: who sees what of it."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from controlplane.alerts.models import Alert, Delivery
from controlplane.jobs.models import Job
from tests.frontend import factories
from tests.frontend.alert_rows import alert_rows

pytestmark = pytest.mark.django_db


@pytest.fixture
def job() -> Job:
    job = factories.make_job(user=User.objects.create_user("ada"))
    alert_rows(job)
    return job


def text_of(client: Client, path: str = "/alerts/") -> str:
    reply = client.get(path)
    assert reply.status_code == 200
    return reply.content.decode()


def test_what_fires_is_shown_with_its_moment(viewer: Client, job: Job) -> None:
    page = text_of(viewer)
    assert page.count("View details") == 4
    assert f"w1 of job {job.pk} ({job.name}) on machine-1 was lost" in page
    assert "1 message not delivered" in page
    assert "1 message could not be delivered" in page
    assert "status 404: no_team" in page


def test_what_is_critical_is_first_and_what_is_silenced_last(viewer: Client, job: Job) -> None:
    page = text_of(viewer)
    firing = page[page.index("Firing") : page.index("Silences")]
    names = ["Disk filling", "Worker or server lost", "Straggler costs 10 %"]
    assert sorted(names, key=firing.index) == names


def test_only_undelivered_messages_of_what_fires_are_warned_of(viewer: Client, job: Job) -> None:
    failed = Delivery.objects.get(state="failed")
    Delivery.objects.create(target=failed.target, notice="test", message=failed.message, state="failed")
    assert "1 message could not be delivered" in text_of(viewer)
    Alert.objects.filter(pk=failed.alert_id).update(stage="resolved")
    assert "could not be delivered" not in text_of(viewer)


def test_buttons_are_those_of_the_role(viewer: Client, operator: Client, admin: Client, job: Job) -> None:
    buttons = ("silence-", "resend-", "edit-rule-", "test-target-")
    found = {
        role: {name for name in buttons if f'id="{name}' in text_of(client)}
        for role, client in (("viewer", viewer), ("operator", operator), ("admin", admin))
    }
    assert found == {
        "viewer": set(),
        "operator": {"silence-", "resend-"},
        "admin": {"silence-", "resend-", "edit-rule-", "test-target-"},
    }
    assert ["rule-dialog" in text_of(client) for client in (viewer, operator, admin)] == [False, False, True]


def test_secrets_of_targets_are_on_no_page(admin: Client, job: Job) -> None:
    for path in ("/alerts/", "/alerts/live/", "/audit/"):
        assert "/T0/x" not in text_of(admin, path)


def test_an_empty_page_reports_what_to_do(viewer: Client, admin: Client) -> None:
    assert "No rules yet" in text_of(viewer)
    assert ["default-rules" in text_of(client) for client in (viewer, admin)] == [False, True]


def test_a_target_whose_key_is_gone_is_shown_as_such(admin: Client, job: Job, settings: object) -> None:
    settings.SECRET_KEY = "n" * 60  # type: ignore[attr-defined]
    user = User.objects.get(username="admin")
    admin.force_login(user)
    assert "cannot be decrypted: see SECRET_KEY_FALLBACKS" in text_of(admin)


def test_text_of_alerts_is_escaped(viewer: Client, job: Job) -> None:
    Alert.objects.update(summary="<script>alert(1)</script>", rule_name='"><img src=x>')
    Delivery.objects.update(error="<script>alert(2)</script>")
    page = text_of(viewer)
    assert not re.search(r"<script>alert|<img src=x", page)


def test_every_page_leads_to_alerts(viewer: Client) -> None:
    assert 'href="/alerts/"' in text_of(viewer, "/")
