"""What alerts see of jobs, processes and the control plane, and the pages to which they link."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from controlplane.alerts.models import Alert, Delivery, Evaluated, Rule
from controlplane.alerts.shares import WINDOW_S, Mark, advanced
from controlplane.alerts.view import View
from controlplane.core.states import RANKS_AWAITED, JobState
from controlplane.jobs.models import Decision, Flag, FlagNote, Job, Process
from controlplane.runtime import alerting
from controlplane.runtime.alert_view import GONE, LOSS_STAYS, read_view, waiting_sums
from controlplane.runtime.redis import Client
from controlplane.telemetry.models import WorkerSums
from tests.alerts.rows import alerts, saved_rule, webhook

pytestmark = pytest.mark.django_db


@pytest.fixture
def job() -> Job:
    user = User.objects.create_user("ada")
    now = timezone.now()
    return Job.objects.create(
        name="nightly",
        spec={"labels": {"gpu": "a100"}},
        submitted_by=user,
        state=JobState.RUNNING,
        started_at=now,
        iteration=40,
    )


def process(job: Job, instance: str, state: str, *, ago: float = 0, **more: Any) -> Process:
    at = timezone.now() - timedelta(seconds=ago)
    fields = {"role": "worker", "index": 1, "state_since": at, "started_at": at}
    return Process.objects.create(job=job, instance=instance, state=state, **fields | more)


def losses(client: Client) -> list[str]:
    return [each.title for each in read_view(client, timezone.now(), timezone.now()).losses]


def test_a_lost_worker_counts_until_another_is_ready(client: Client, job: Job) -> None:
    ago = LOSS_STAYS.total_seconds() + 5
    process(job, "a", "lost", ago=ago)
    assert losses(client) == ["w1"]
    second = process(job, "b", "ordered", ago=1)
    assert losses(client) == ["w1"]
    Process.objects.filter(pk=second.pk).update(state="ready")
    assert losses(client) == []


def test_a_loss_is_seen_though_a_successor_was_ready_before_anybody_looked(client: Client, job: Job) -> None:
    process(job, "a", "lost", ago=1)
    process(job, "b", "ready")
    assert losses(client) == ["w1"]


def test_a_loss_during_a_time_without_evaluations_is_seen_after_it(client: Client, job: Job) -> None:
    process(job, "a", "lost", ago=600)
    process(job, "b", "ready", ago=590)
    now = timezone.now()
    assert len(read_view(client, now, now - timedelta(seconds=700)).losses) == 1
    assert len(read_view(client, now, now - timedelta(seconds=5)).losses) == 0


def test_a_process_that_was_stopped_is_not_lost(client: Client, job: Job) -> None:
    process(job, "a", "stopped")
    assert losses(client) == []


def silent_s(client: Client, job: Job, now: datetime) -> float | None:
    heard = read_view(client, now, now).jobs[job.pk].last_report_at
    return None if heard is None else (now - heard).total_seconds()


def test_a_rank_of_a_launcher_is_lost_while_it_is_unresponsive_and_not_when_it_is_back(
    client: Client, job: Job
) -> None:
    Job.objects.update(launch="attached")
    first = process(job, "a", "unreachable", ago=GONE.total_seconds() - 5)
    assert losses(client) == []
    Process.objects.filter(pk=first.pk).update(state_since=timezone.now() - GONE)
    assert losses(client) == ["w1"]
    reason = "another process has replaced its rank"
    Process.objects.filter(pk=first.pk).update(state="lost", ended_at=timezone.now(), reason=reason)
    process(job, "b", "ready")
    assert losses(client) == []


def test_an_unresponsive_worker_of_an_agent_is_not_lost_yet(client: Client, job: Job) -> None:
    process(job, "a", "unreachable", ago=600)
    assert losses(client) == []


def test_an_attached_job_whose_ranks_are_gone_is_stalled(client: Client, job: Job) -> None:
    saved_rule("job-stalled", parameters={"after_s": 60})
    now = timezone.now()
    waits = {"awaited": f"{RANKS_AWAITED}, none of which is connected", "reason": "all 2 ranks are gone"}
    Job.objects.update(launch="attached", state=JobState.PAUSED, state_since=now, **waits)
    alerting.evaluate(client, now + timedelta(seconds=59))
    assert alerts() == []
    alerting.evaluate(client, now + timedelta(seconds=61))
    assert alerts() == [("one", "firing")]
    assert Alert.objects.get().summary.endswith("iteration 40: all 2 ranks are gone, no report for 61 s")


def test_a_job_that_an_operator_paused_is_not_stalled(client: Client, job: Job) -> None:
    Job.objects.update(launch="attached", state=JobState.PAUSED, awaited="resume", reason="paused by ada")
    assert silent_s(client, job, timezone.now() + timedelta(hours=1)) is None


def test_the_share_of_waiting_is_that_of_the_last_half_minute(client: Client, job: Job) -> None:
    sums = WorkerSums.objects.create(
        job=job, rank=0, instance="a", at_ms=0, reports=1, samples=1, newest={},
        data_s=0, compute_s=80, push_s=5, pull_s=5, waiting_s=10, coordination_s=0,
    )  # fmt: skip
    marks = advanced({}, waiting_sums([job.pk]), 100.0)
    assert marks == {job.pk: Mark(at_s=100.0, waiting_s=10.0, whole_s=100.0)}
    sums.compute_s, sums.waiting_s = 90, 40
    sums.save()
    assert advanced(marks, waiting_sums([job.pk]), 100.0 + WINDOW_S - 1) == marks
    (later,) = advanced(marks, waiting_sums([job.pk]), 100.0 + WINDOW_S).values()
    assert later.share == pytest.approx(30 / 40)


def test_a_job_that_reports_nothing_is_stalled(client: Client, job: Job) -> None:
    saved_rule("job-stalled", parameters={"after_s": 60})
    now = timezone.now()
    alerting.evaluate(client, now)
    assert alerts() == []
    alerting.evaluate(client, now + timedelta(seconds=70))
    assert alerts() == [("one", "firing")]
    row = Alert.objects.get()
    assert row.path == f"/jobs/{job.pk}/?tab=timeline&first-timeline=30"
    assert row.summary.startswith(f"job {job.pk} (nightly) is stalled at iteration 40: no report for ")
    WorkerSums.objects.create(
        job=job, rank=0, instance="a", at_ms=int(now.timestamp() * 1000) + 131_000, reports=1, samples=1, newest={},
        data_s=0, compute_s=0, push_s=0, pull_s=0, waiting_s=0, coordination_s=0,
    )  # fmt: skip
    alerting.evaluate(client, now + timedelta(seconds=132))
    assert alerts() == [("one", "resolved")]


def test_a_flag_with_cost_fires_unless_someone_muted_it(client: Client, job: Job) -> None:
    saved_rule("straggler", parameters={"cost": 0.3}, clear_s=0)
    evidence = {"iteration_s": 1.0, "without_s": 0.6}
    fields = {"rank": 3, "kind": "compute", "persistence": "lasting", "sentence": "w3 is slow"}
    flag = Flag.objects.create(job=job, key="k", evidence=evidence, opened_at=timezone.now(), **fields)
    alerting.evaluate(client)
    row = Alert.objects.get()
    assert (row.stage, row.value, row.labels["worker"], row.labels["gpu"]) == ("firing", 0.4, "w3", "a100")
    about = {"subject": "worker", "rank": 3, "kind": "compute", "actor": "ada"}
    FlagNote.objects.create(job=job, key=flag.key, **about)
    alerting.evaluate(client)
    assert alerts() == [("one", "resolved")]


def test_a_skipped_checkpoint_leads_to_its_decision(client: Client, job: Job) -> None:
    saved_rule("checkpoint-failed")
    decision = {"kind": "skip-checkpoint", "cause": "1-0", "reason": "s0: no space", "payload": {}}
    Decision.objects.create(job=job, incarnation=0, sequence=17, at=timezone.now(), **decision)
    for _ in range(2):
        alerting.evaluate(client)
    row = Alert.objects.get()
    assert row.summary == f"a checkpoint of job {job.pk} (nightly) failed: s0: no space"
    assert row.path == f"/jobs/{job.pk}/?tab=decisions&decisions=all&before=18#decision-0-17"


def test_a_job_that_ended_between_evaluations_alerts_once(client: Client, job: Job) -> None:
    webhook("http://127.0.0.1:9/x")
    for kind in ("job-failed", "loss-not-finite", "job-done"):
        saved_rule(kind, name=kind, targets=["hook"])
    now = timezone.now()
    Rule.objects.update(since=now - timedelta(days=1))
    alerting.evaluate(client, now - timedelta(hours=3))
    reason = "the loss of w1 in iteration 40 is nan; there is no checkpoint; try a smaller learning rate"
    Job.objects.update(state=JobState.FAILED, reason=reason, finished_at=now - timedelta(hours=2))
    for seconds in range(0, 100, 5):
        alerting.evaluate(client, now + timedelta(seconds=seconds))
    assert sorted(alerts()) == [("job-failed", "resolved"), ("loss-not-finite", "resolved")]
    assert Delivery.objects.count() == 2


def test_an_evaluation_that_was_overtaken_by_another_changes_nothing(
    client: Client, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked before the other did, and took longer than its lease."""
    saved_rule("worker-lost", clear_s=0)
    now, late = timezone.now(), timezone.now() + timedelta(seconds=90)
    alerting.evaluate(client, now)
    process(job, "a", "lost")

    def slow(*given: Any) -> View:
        view = read_view(*given)
        monkeypatch.setattr(alerting, "read_view", read_view)
        Process.objects.update(state="stopped")
        alerting.evaluate(client, late)
        return view

    monkeypatch.setattr(alerting, "read_view", slow)
    assert alerting.evaluate(client, now + timedelta(seconds=5)).changed == 0
    assert (alerts(), Evaluated.objects.get().at) == ([], late)


def test_the_plane_is_measured(client: Client) -> None:
    plane = read_view(client, timezone.now(), None).plane
    assert plane.disk_free is not None
    assert 0 < plane.disk_free <= 1
    assert plane.redis_used is not None
    assert 0 < plane.redis_used < 1
    assert (plane.ingest_lag_s, dict(plane.failing)) == (0.0, {})


def test_pages_are_notified_of_what_changes(client: Client, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(alerting.ticks, "publish", lambda _, **what: told.append(what))
    saved_rule("job-stalled", parameters={"after_s": 60})
    for seconds in (0, 70, 75):
        alerting.evaluate(client, timezone.now() + timedelta(seconds=seconds))
    assert told == [{"alerts": True}]


def test_without_rules_little_is_read_and_the_time_is_kept(client: Client, django_assert_max_num_queries: Any) -> None:
    now = timezone.now()
    with django_assert_max_num_queries(4):
        alerting.evaluate(client, now)
    assert Evaluated.objects.get().at == now
    alerting.evaluate(client, now + timedelta(seconds=5))
    assert Evaluated.objects.get().at == now + timedelta(seconds=5)
