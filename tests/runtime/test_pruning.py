"""What is taken away after a while, and what stays."""

import json
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from knox.models import AuthToken

from controlplane.alerts.models import Alert, Delivery, Silence, Target
from controlplane.core.states import JobState
from controlplane.fleet.models import Agent, AgentSample, EnrolmentToken
from controlplane.jobs.models import Decision, Job
from controlplane.people.models import LoginAttempt
from controlplane.runtime.pruning import Limits, old_jobs, prune
from controlplane.telemetry.history import has_detail, read_columns
from controlplane.telemetry.models import Chunk, Evaluation, RawEvent, ReportBatch, Rollup
from tests.frontend import factories
from tests.frontend.factories import EVEN, Pace

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def job(days: int, *, state: JobState = JobState.SUCCEEDED, **more: Any) -> Job:
    """One that ended so many days ago, with 12 iterations of 4 workers."""
    row = factories.make_job(state=state, finished_at=NOW - timedelta(days=days), **more)
    factories.make_reports(row, [Pace(shares=EVEN)] * 12)
    factories.make_scores(row, every=4, until=12)
    factories.make_decisions(row)
    RawEvent.objects.create(job=row, incarnation=0, stream_id="1-0", kind="report", payload=b"")
    return row


def limits(**more: Any) -> Limits:
    return Limits(now=NOW, **{"keep_jobs": 0} | more)


def test_detail_of_old_jobs_goes_and_what_tells_their_story_stays() -> None:
    old, young = job(31), job(29)
    running = job(400, state=JobState.RUNNING)
    before = read_columns(old.pk, ("samples",))[2]["samples"].sum()
    counted = prune(limits())
    assert [counted[name] for name in ("jobs", "events", "report batches")] == [1, 1, 1]
    for table in (RawEvent, ReportBatch):
        assert set(table.objects.values_list("job_id", flat=True)) == {young.pk, running.pk}
    assert not Chunk.objects.filter(job=old).exists()
    for kept in (Rollup, Decision, Evaluation):
        assert kept.objects.filter(job=old).exists()
    assert not has_detail(old.pk)
    assert (before, list(read_columns(old.pk, ("samples",))[2]["samples"])) == (12 * 64, [64, 64])
    assert prune(limits())["jobs"] == 0


def test_the_last_jobs_that_ended_keep_everything() -> None:
    ages = [job(days).pk for days in (50, 40, 60)]
    assert old_jobs(limits(keep_jobs=2)) == [ages[2]]
    assert old_jobs(limits(keep_jobs=0, older_than=timedelta(days=45))) == [ages[0], ages[2]]


def test_keys_tokens_and_samples_go_when_they_are_of_no_use() -> None:
    old, user = job(31, idempotency_key="abc"), User.objects.create(username="ann")
    Job.objects.filter(pk=old.pk).update(created_at=NOW - timedelta(days=31))
    agent = factories.make_agents(1)[0]
    AgentSample.objects.update(at=NOW - timedelta(days=31))
    AgentSample.objects.create(agent=agent, at=NOW - timedelta(days=1), cpu=0.5, memory=0.5)
    for days in (-1, 1):
        expiry = NOW + timedelta(days=days)
        AuthToken.objects.create(user=user)[0]
        AuthToken.objects.filter(expiry__gt=NOW + timedelta(days=2)).update(expiry=expiry)
        EnrolmentToken.objects.create(digest=str(days), expires_at=expiry)
    for uses in (1, 2):  # both used up long ago; machines of the reusable one may join again
        spent = {"uses": uses, "used": uses, "used_at": NOW - timedelta(days=31)}
        EnrolmentToken.objects.create(digest=f"uses {uses}", expires_at=NOW + timedelta(days=1), **spent)
    counted = prune(limits())
    kinds = ("idempotency keys", "machine samples", "API tokens", "enrolment tokens")
    assert {kind: counted[kind] for kind in kinds} == dict(zip(kinds, (1, 6, 1, 2), strict=True))
    assert AgentSample.objects.count() == AuthToken.objects.count() == 1
    assert set(EnrolmentToken.objects.values_list("digest", flat=True)) == {"1", "uses 2"}


def test_an_expired_reusable_token_stays_as_long_as_its_machines() -> None:
    for uses in (1, 2):
        token = EnrolmentToken.objects.create(digest=f"uses {uses}", uses=uses, expires_at=NOW - timedelta(days=1))
        Agent.objects.create(name=f"m{uses}", token=token, credential_digest=str(uses))
    assert prune(limits())["enrolment tokens"] == 1
    assert set(EnrolmentToken.objects.values_list("digest", flat=True)) == {"uses 2"}
    Agent.objects.get(name="m2").delete()
    assert prune(limits())["enrolment tokens"] == 1


def test_failed_logins_go_once_they_no_longer_count() -> None:
    for minutes in (1, 16):
        LoginAttempt.objects.create(at=NOW - timedelta(minutes=minutes), account="a", network="192.0.2.1")
    assert prune(limits())["failed logins"] == 1


def test_the_command_counts_before_it_takes() -> None:
    old = job(40)
    Job.objects.filter(pk=old.pk).update(finished_at=datetime.now(UTC) - timedelta(days=40))
    told = StringIO()
    call_command("prune", "--dry-run", "--keep-jobs", "0", "--json", stdout=told)
    assert json.loads(told.getvalue())["removed"]["report batches"] == 1
    assert ReportBatch.objects.count() == 1
    told = StringIO()
    call_command("prune", "--older-than", "5w", "--keep-jobs", "0", stdout=told, stderr=StringIO())
    assert told.getvalue().startswith("1 events, 1 report batches, ")
    assert ReportBatch.objects.count() == 0


@pytest.mark.parametrize("bad", ["30", "d", "-3d", "3y"])
def test_an_age_that_is_none_is_refused(bad: str) -> None:
    with pytest.raises(CommandError, match="expected a number with h, d or w"):
        call_command("prune", f"--older-than={bad}")


def test_old_alerts_go_with_their_messages_and_what_fires_stays() -> None:
    target = Target.objects.create(name="hook", kind="webhook", sealed=b"")
    old, young = NOW - timedelta(days=31), NOW - timedelta(days=29)
    fields = {"rule_name": "one", "kind": "waiting", "severity": "info", "summary": "s", "since": old, "seen_at": old}
    for name, more in (
        ("old", {"stage": "resolved", "resolved_at": old, "is_remembered": False}),
        ("young", {"stage": "resolved", "resolved_at": young, "is_remembered": False}),
        ("fires", {"stage": "firing"}),
    ):
        alert = Alert.objects.create(key=name, **fields, **more)
        Delivery.objects.create(alert=alert, target=target, notice="firing", message={}, created_at=old)
    Delivery.objects.create(target=target, notice="test", message={}, created_at=old)
    for until in (old, young):
        Silence.objects.create(until=until, created_by="ada")
    counted = prune(limits())
    assert {name: counted[name] for name in ("alerts", "tests of targets", "silences")} == {
        "alerts": 1,
        "tests of targets": 1,
        "silences": 1,
    }
    assert sorted(Alert.objects.values_list("key", flat=True)) == ["fires", "young"]
    assert Delivery.objects.count() == 2
