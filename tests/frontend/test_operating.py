"""What an operator can do about a job stands on its page, and what was asked until it has an effect."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from controlplane.jobs.flag_notes import flag_acknowledge, flag_mute
from controlplane.jobs.models import Flag, Job, Process
from controlplane.jobs.services import audit
from tests.frontend import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def job() -> Job:
    return factories.demo_job()


def page(job: Job, role: str = "operator", **query: str) -> str:
    user, _ = User.objects.get_or_create(username=role)
    user.groups.add(Group.objects.get_or_create(name=role)[0])
    client = Client()
    client.force_login(user)
    return client.get(f"/jobs/{job.pk}/", query).content.decode()


def test_operators_are_offered_what_viewers_are_not(job: Job) -> None:
    controls = ('id="exclude-w3"', 'id="drain-w3"', 'id="drain-s1"', 'id="add-server"', 'id="change-policy"')
    shown, hidden = page(job, tab="processes"), page(job, "viewer", tab="processes")
    assert [control in shown for control in controls] == [True] * 5
    assert [control in hidden for control in controls] == [False] * 5


def test_one_that_has_left_can_be_included_and_one_that_returns_by_itself_excluded(job: Job) -> None:
    Process.objects.filter(role="worker", index=3).update(state="stopped", ended_at=timezone.now())
    Process.objects.filter(role="worker", index=2).update(state="dead", wants_slot=True, ended_at=timezone.now())
    shown = page(job, tab="processes")
    assert ('id="include-w3"' in shown, 'id="exclude-w3"' in shown) == (True, False)
    assert ('id="include-w2"' in shown, 'id="exclude-w2"' in shown) == (False, True)


def test_a_job_that_is_over_offers_nothing(job: Job) -> None:
    Job.objects.update(state="succeeded", finished_at=timezone.now())
    shown = page(job, tab="processes")
    assert [control in shown for control in ('id="exclude-w3"', 'id="add-server"', "ask-dialog")] == [False] * 3


def test_a_request_is_shown_until_it_has_an_effect_and_a_refusal_for_a_while(job: Job) -> None:
    subject = str(job)
    audit(actor="ada", action="worker-drain", subject=subject, detail={"process": "w3"}, job=job, entry="5-1")
    entry = audit(actor="ada", action="job-change", subject=subject, detail={"barrier": {"name": "asp"}}, job=job)
    entry.entry = "5-2"
    entry.save()
    shown = page(job)
    assert "<strong>Pending:</strong> w3 is drained" in shown
    assert "<strong>Pending:</strong> barrier becomes asp" in shown
    row = factories.make_decision(job, 90, "decline-request", {"actor": "ada"}, reason="it ends before iteration 3")
    row.cause = "5-2"
    row.save()
    assert "<strong>Declined:</strong> barrier becomes asp" in page(job)
    assert "it ends before iteration 3" in page(job)
    type(entry).objects.update(at=timezone.now() - timedelta(minutes=5))
    assert "barrier becomes asp" not in page(job)


def test_a_finding_that_was_seen_or_muted_is_listed_and_not_announced(job: Job) -> None:
    flag = Flag.objects.get()
    announced = f'<span>{flag.sentence.partition(";")[0]} <a href="#job-flags">'
    assert announced in page(job)
    flag_acknowledge(flag=flag, actor="ada")
    shown = page(job)
    assert (announced in shown, "seen by ada" in shown, 'id="acknowledge-' in shown) == (False, True, False)
    flag_mute(flag=flag, actor="bob", until=timezone.now() + timedelta(hours=1))
    shown = page(job)
    assert ("muted by bob until" in shown, 'id="unmute-' in shown) == (True, True)
