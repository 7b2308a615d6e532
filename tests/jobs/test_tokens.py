"""Tokens of attached jobs: one job each, hashed, rotated, revoked."""

from datetime import timedelta

import pytest
from django.utils import timezone

from controlplane.jobs import tokens
from controlplane.jobs.models import AuditEntry, Job, JobToken

pytestmark = pytest.mark.django_db


def attached_job() -> Job:
    return Job.objects.create(name="mine", spec={}, launch="attached")


def test_a_token_opens_its_own_job_alone() -> None:
    job, other = attached_job(), attached_job()
    secret = tokens.token_issue(job=job, actor="ann")
    assert tokens.verdict_on(secret, job.pk).good
    verdict = tokens.verdict_on(secret, other.pk)
    assert not verdict.good
    assert "must be of one job" in verdict.sentence


def test_only_its_hash_is_kept() -> None:
    secret = tokens.token_issue(job=attached_job(), actor="ann")
    stored = [*JobToken.objects.values_list("digest", flat=True), *map(str, AuditEntry.objects.values())]
    assert not any(secret in text for text in stored)


def test_the_requesting_user_is_in_the_audit_log() -> None:
    job = attached_job()
    tokens.token_issue(job=job, actor="ann")
    tokens.token_issue(job=job, actor="bob", grace_s=60)
    tokens.tokens_revoke(job=job, actor="eve")
    rows = AuditEntry.objects.filter(job=job).order_by("id").values_list("actor", "action", "detail")
    assert list(rows) == [
        ("ann", "job-token", {"replaced": 0, "grace_s": 0.0}),
        ("bob", "job-token", {"replaced": 1, "grace_s": 60}),
        ("eve", "job-token-revoke", {"tokens": 2}),
    ]


def test_a_new_token_ends_those_before_it() -> None:
    job = attached_job()
    first, second = tokens.token_issue(job=job, actor="ann"), tokens.token_issue(job=job, actor="ann")
    assert "ended at" in tokens.verdict_on(first, job.pk).sentence
    assert tokens.verdict_on(second, job.pk).good


def test_a_stated_grace_keeps_the_old_one_good_for_so_long() -> None:
    job, now = attached_job(), timezone.now()
    first = tokens.token_issue(job=job, actor="ann")
    tokens.token_issue(job=job, actor="ann", grace_s=60)
    assert tokens.verdict_on(first, job.pk, now).good
    assert not tokens.verdict_on(first, job.pk, now + timedelta(seconds=61)).good


def test_a_shorter_end_is_never_put_off() -> None:
    job = attached_job()
    first = tokens.token_issue(job=job, actor="ann")
    tokens.tokens_revoke(job=job, actor="ann")
    tokens.token_issue(job=job, actor="ann", grace_s=3600)
    assert not tokens.verdict_on(first, job.pk).good


def test_revoking_ends_all_of_them() -> None:
    job = attached_job()
    held = [tokens.token_issue(job=job, actor="ann", grace_s=60) for _ in range(3)]
    assert tokens.tokens_revoke(job=job, actor="ann") == 3
    assert not any(tokens.verdict_on(secret, job.pk).good for secret in held)
    assert not tokens.live_tokens(job).exists()


def test_it_ends_with_its_job() -> None:
    job = attached_job()
    secret = tokens.token_issue(job=job, actor="ann")
    Job.objects.filter(pk=job.pk).update(state="succeeded")
    assert tokens.verdict_on(secret, job.pk).job_over


@pytest.mark.parametrize(
    ("secret", "sentence"),
    [
        ("", "found no token"),
        ("0123abcd", "found a token of a person"),
        ("plj_nobody", "there is no such token"),
    ],
)
def test_what_is_none_is_refused_with_the_cure(secret: str, sentence: str) -> None:
    verdict = tokens.verdict_on(secret, attached_job().pk)
    assert not verdict.good
    assert sentence in verdict.sentence
    assert "token" in verdict.sentence.partition(";")[2] or "PACELINE_TOKEN" in verdict.sentence


def test_one_of_a_native_job_is_its_launchers_and_no_ranks() -> None:
    job = Job.objects.create(name="ours", spec={})
    secret = tokens.token_issue(job=job, actor="ann")
    assert tokens.verdict_on(secret, job.pk).good
    assert "each with its own key" in tokens.rank_verdict_on(secret, job.pk).sentence
    assert tokens.tokens_revoke(job=job, actor="ann") == 1
    assert "ended at" in tokens.rank_verdict_on(secret, job.pk).sentence


def test_hashes_of_expired_tokens_are_distinguished_from_valid_ones() -> None:
    job = attached_job()
    tokens.token_issue(job=job, actor="ann")
    (first,) = JobToken.objects.values_list("digest", flat=True)
    tokens.token_issue(job=job, actor="ann")
    both = set(JobToken.objects.values_list("digest", flat=True))
    assert tokens.still_good(both) == both - {first}
