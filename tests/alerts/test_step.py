"""One evaluation against the database: rows, messages, silences, targets."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controlplane.alerts.models import Alert, Delivery, Rule
from controlplane.alerts.services import rule_remove, rule_save, silence_create, silence_end
from controlplane.alerts.step import Stepped, alerts_evaluate
from controlplane.alerts.view import JobNow, Loss, PlaneNow, View
from controlplane.jobs.models import AuditEntry, Job
from tests.alerts.rows import alerts, deliveries, mailbox, saved_rule, webhook

pytestmark = pytest.mark.django_db

NOON = datetime(2126, 11, 23, 12, tzinfo=UTC)
FULL = PlaneNow(disk_free=0.05, disk_path="/data", disk_free_bytes=2_000_000_000)
EMPTY = PlaneNow(disk_free=0.5)


def step(plane: PlaneNow = EMPTY, *, seconds: float = 0, **view: Any) -> Stepped:
    now = NOON + timedelta(seconds=seconds)
    return alerts_evaluate(View(now=now, plane=plane, **view), place_of=lambda _: "/here/", base_url="http://x")


def test_an_alert_is_a_row_from_pending_to_resolved() -> None:
    saved_rule(for_s=10, clear_s=10, severity="critical")
    step(FULL)
    assert alerts() == [("one", "pending")]
    assert step(FULL, seconds=10) == Stepped(changed=1, queued=0)
    row = Alert.objects.get()
    assert (row.stage, row.severity, row.path) == ("firing", "critical", "/here/")
    assert row.summary == ("5.0% of the disk with /data is free (2.0 GB): free disk space, or run manage.py prune")
    step(seconds=15)
    assert step(seconds=20) == Stepped(changed=1, queued=0)
    row.refresh_from_db()
    assert (row.stage, row.resolved_at, row.is_remembered) == ("resolved", NOON + timedelta(seconds=20), False)
    step(FULL, seconds=25)
    assert alerts() == [("one", "resolved"), ("one", "pending")]


def test_what_pended_and_came_to_nothing_leaves_no_row() -> None:
    saved_rule(for_s=60)
    step(FULL)
    step(seconds=5)
    assert alerts() == []


def test_each_target_of_the_rule_is_reported() -> None:
    webhook("http://127.0.0.1:1/x"), mailbox("ada@example.org")
    saved_rule(targets=["hook", "mail"], clear_s=0)
    step(FULL)
    step(seconds=5)
    rows = Delivery.objects.order_by("pk")
    assert {(row.target.name, row.notice) for row in rows} == {
        (name, notice) for name in ("hook", "mail") for notice in ("firing", "resolved")
    }
    assert rows[0].message["url"] == "http://x/here/"
    assert len({row.key for row in rows}) == 4


def test_an_evaluation_that_finds_nothing_new_writes_nothing(django_assert_max_num_queries: Any) -> None:
    saved_rule()
    step(FULL)
    with django_assert_max_num_queries(9):
        step(FULL)


JOB = JobNow(name="nightly", user="ada", state="running", iteration=40, labels={"gpu": "a100"})


def lost(job: int, title: str = "w1") -> Loss:
    return Loss(job=job, title=title, machine="m1", at=NOON, reason="was ended by signal 9")


def test_a_rule_watches_what_has_its_labels() -> None:
    ours, other = Job.objects.create(name="nightly", spec={}), Job.objects.create(name="other", spec={})
    saved_rule("worker-lost", where={"gpu": "a100", "worker": "w1"})
    jobs = {ours.pk: JOB, other.pk: JobNow(name="other", user="ada", state="running", iteration=0)}
    step(jobs=jobs, losses=(lost(ours.pk), lost(ours.pk, "w2"), lost(other.pk)))
    row = Alert.objects.get()
    assert (row.job, row.labels) == (
        ours,
        {"gpu": "a100", "job": "nightly", "user": "ada", "worker": "w1", "machine": "m1"},
    )
    assert row.summary == f"w1 of job {ours.pk} (nightly) on m1 was lost: was ended by signal 9"


@pytest.mark.parametrize("about", ["rule", "job", "labels"])
def test_no_notification_is_sent_during_a_silence_and_it_is_audited(about: str) -> None:
    job = Job.objects.create(name="nightly", spec={})
    webhook("http://127.0.0.1:1/x")
    rule = saved_rule("worker-lost", targets=["hook"])
    subject: dict[str, Any] = {"rule": rule, "job": job, "labels": {"machine": "m1"}}
    silence = silence_create(
        until=NOON + timedelta(hours=1), actor="ada", reason="maintenance", **{about: subject[about]}
    )
    seen: dict[str, Any] = {"jobs": {job.pk: JOB}, "losses": (lost(job.pk),)}
    assert step(**seen) == Stepped(changed=1, queued=0)
    assert Alert.objects.get().silenced
    entry = AuditEntry.objects.get(action="alert-silence")
    assert (entry.actor, entry.detail["reason"]) == ("ada", "maintenance")
    silence_end(row=silence, actor="eve")
    assert step(seconds=5, **seen) == Stepped(changed=0, queued=1), "the alert still fires: now it is told"
    assert AuditEntry.objects.filter(actor="eve", action="alert-silence-end").exists()


def test_a_silence_of_something_else_keeps_nothing_quiet() -> None:
    job = Job.objects.create(name="nightly", spec={})
    other = Job.objects.create(name="other", spec={})
    webhook("http://127.0.0.1:1/x")
    saved_rule("worker-lost", targets=["hook"])
    silence_create(until=NOON + timedelta(hours=1), actor="ada", job=other)
    silence_create(until=NOON - timedelta(seconds=1), actor="ada", job=job)
    silence_create(until=NOON + timedelta(hours=1), actor="ada", job=job, labels={"machine": "m2"})
    assert step(jobs={job.pk: JOB}, losses=(lost(job.pk),)).queued == 1


def test_an_alert_of_a_removed_rule_has_resolved_and_stays_listed() -> None:
    first, second = saved_rule(), saved_rule(name="two")
    step(FULL)
    for row in (first, second):
        rule_remove(row=row, actor="ada")
    step(FULL, seconds=5)
    assert alerts() == [("one", "resolved"), ("two", "resolved")]


def test_a_changed_rule_does_not_fire_for_what_was_before(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job.objects.create(name="nightly", spec={})
    rule = saved_rule("job-done")
    Rule.objects.update(since=NOON - timedelta(hours=1))
    ended = JobNow(name="nightly", user="ada", state="succeeded", iteration=40, ended_at=NOON - timedelta(minutes=1))
    assert step(jobs={job.pk: ended}).changed == 1
    Alert.objects.all().delete()
    monkeypatch.setattr("controlplane.alerts.services.timezone.now", lambda: NOON)
    rule_save(rule=rule.document, row=rule, actor="ada")
    assert step(jobs={job.pk: ended}, seconds=5).changed == 0


def test_an_event_is_sent_once_for_any_number_of_evaluations() -> None:
    job = Job.objects.create(name="nightly", spec={})
    webhook("http://127.0.0.1:1/x")
    saved_rule("job-failed", targets=["hook"], clear_s=5)
    Rule.objects.update(since=NOON - timedelta(hours=1))
    failed = JobNow(name="nightly", user="ada", state="failed", iteration=40, ended_at=NOON, reason="w1 ended")
    for seconds in range(0, 60, 5):
        step(jobs={job.pk: failed}, seconds=seconds)
    assert deliveries() == [("firing", "queued", 0)]
    assert alerts() == [("one", "resolved")]
    assert Alert.objects.get().summary == f"job {job.pk} (nightly) failed after 40 iterations: w1 ended"


def test_a_rule_of_a_later_release_stops_no_other() -> None:
    saved_rule()
    saved_rule(name="later")
    Rule.objects.filter(name="later").update(kind="too-hot")
    step(FULL)
    assert alerts() == [("one", "firing")]
