"""What an operator can do about a job stands on its page, and what was asked until it has an effect."""

import json
import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from controlplane.jobs.flag_notes import flag_acknowledge, flag_mute
from controlplane.jobs.models import Flag, Job, Process
from controlplane.jobs.services import audit
from frontend.queries.job import FLAGS
from frontend.tabs import CLOSED
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


def test_a_flagged_worker_can_be_excluded_where_it_is_flagged(job: Job, operator: Client, viewer: Client) -> None:
    flag = Flag.objects.get(job=job)
    button = f'id="exclude-flag-{flag.pk}" data-ask="Exclude w3 from job #{job.pk}?"'
    assert button in operator.get(f"/jobs/{job.pk}/").content.decode()
    assert "exclude-flag" not in viewer.get(f"/jobs/{job.pk}/").content.decode()
    Flag.objects.update(closed_at=factories.START)
    assert "exclude-flag" not in operator.get(f"/jobs/{job.pk}/").content.decode()


def test_one_that_has_left_can_be_included_and_one_that_returns_by_itself_excluded(job: Job) -> None:
    Process.objects.filter(role="worker", index=3).update(state="stopped", ended_at=timezone.now())
    Process.objects.filter(role="worker", index=2).update(state="lost", wants_slot=True, ended_at=timezone.now())
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
    assert "<strong>Pending:</strong> drain w3" in shown
    assert "<strong>Pending:</strong> barrier → asp" in shown
    row = factories.make_decision(job, 90, "decline-request", {"actor": "ada"}, reason="it ends before iteration 3")
    row.cause = "5-2"
    row.save()
    assert "<strong>Declined:</strong> barrier → asp" in page(job)
    assert "it ends before iteration 3" in page(job)
    type(entry).objects.update(at=timezone.now() - timedelta(minutes=5))
    assert "barrier becomes asp" not in page(job)


def test_a_finding_that_was_seen_or_muted_is_listed_and_not_announced(job: Job) -> None:
    flag = Flag.objects.get()
    announced = f'<span>{flag.sentence.partition(";")[0]} <a href="#job-flags">'
    assert announced in page(job)
    flag_acknowledge(flag=flag, actor="ada")
    shown = page(job)
    assert (announced in shown, "acknowledged by ada" in shown, 'id="acknowledge-' in shown) == (False, True, False)
    flag_mute(flag=flag, actor="bob", until=timezone.now() + timedelta(hours=1))
    shown = page(job)
    assert ("muted by bob until" in shown, 'id="unmute-' in shown) == (True, True)


def test_findings_that_were_closed_long_ago_are_folded_away(job: Job) -> None:
    for place in range(CLOSED + 2):
        at = factories.START - timedelta(minutes=place)
        factories.make_flag(job, key=f"w1:{place}", rank=1, opened_at=at, closed_at=at, sentence=f"finding {place}.")
    shown, folded = page(job).split("<summary>2 more closed findings</summary>")
    assert Flag.objects.get(closed_at=None).sentence in shown
    for place in range(CLOSED + 2):
        assert (f"finding {place}." in shown, f"finding {place}." in folded) == (place < CLOSED, place >= CLOSED)


def test_a_finding_that_stays_open_is_listed_however_many_came_and_went_since(job: Job) -> None:
    for place in range(1, FLAGS + 1):
        at = factories.START + timedelta(minutes=place)
        factories.make_flag(job, key=f"w1:{place}", rank=1, opened_at=at, closed_at=at, sentence=f"finding {place}.")
    open_one = Flag.objects.get(closed_at=None)
    shown = page(job)
    assert shown.index(open_one.sentence) < shown.index(f"finding {FLAGS}.")


def test_a_muted_finding_marks_no_job_in_the_list(job: Job, viewer: Client) -> None:
    mark = 'aria-label="Straggler flagged"'
    assert mark in viewer.get("/jobs/").content.decode()
    flag_mute(flag=Flag.objects.get(), actor="ada", until=timezone.now() + timedelta(hours=1))
    assert mark not in viewer.get("/jobs/").content.decode()
    factories.make_flag(job, key="w2:compute", rank=2)
    assert mark in viewer.get("/jobs/").content.decode()


def test_the_operator_chooses_how_long_a_finding_is_muted(job: Job) -> None:
    choices = re.search(r"data-choices='([^']+)'", page(job))
    assert choices is not None
    minutes = [value for value, _ in json.loads(choices[1])]
    assert (minutes[0], sorted(minutes)) == (60, [15, 60, 480, 1440, 10080])


def test_updates_that_came_late_or_not_at_all_are_reported(job: Job) -> None:
    noted = {"late": {"3": 4, "1": 2}, "missing": [[58, 3]]}
    factories.make_decision(job, 90, "note-updates", noted)
    assert "Updates that arrived too late and were dropped: w1 2, w3 4." in page(job, tab="placement")
    told = "w3 left in iteration 58; 6 late updates dropped so far"
    assert told in page(job, tab="decisions", decisions="barrier")


def test_every_worker_can_be_picked_by_its_rank_or_machine(job: Job) -> None:
    Process.objects.filter(role="worker", index=3).delete()
    picker = page(job).partition('id="worker-picks"')[2].partition("</fieldset>")[0]
    words = re.sub(r"<[^>]+>", " ", picker).split()
    assert words[-7:] == ["w0", "machine-0", "w1", "machine-1", "w2", "machine-2", "w3"]
