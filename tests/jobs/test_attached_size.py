"""An attached job is as large as its ranks say, and its row says so too."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from controlplane.core.commands import SetShares
from controlplane.jobs.models import Job
from controlplane.jobs.projections import Answer, apply_answers
from controlplane.jobs.services import job_submit
from controlplane.protocol.spec import parse_spec
from tests.support.rows import SPEC

pytestmark = pytest.mark.django_db


def submitted(key: str | None = None, **changes: Any) -> Job:
    user, _ = User.objects.get_or_create(username="ann")
    document = {"name": "mine", "launch": "attached"} | changes
    return job_submit(document=document, user=user, idempotency_key=key).job


def decide(job: Job, *shares: int, sequence: int = 1) -> Job:
    decision = SetShares(
        cause="1-0", reason="so", generation=1, iteration=0, policy="uniform", shares=dict(enumerate(shares))
    )
    apply_answers(job.pk, [Answer(incarnation=0, sequence=sequence, commands=[decision])])
    job.refresh_from_db()
    return job


def test_it_is_as_large_as_its_ranks_report() -> None:
    job = decide(submitted(), 48, 16)
    spec = parse_spec(job.spec)
    assert (spec.workers, spec.batch_size, spec.global_batch) == (2, 32, 64)


def test_it_follows_another_world() -> None:
    assert parse_spec(decide(decide(submitted(), 48, 16), 32, 32, 32, sequence=2).spec).workers == 3


def test_a_size_that_its_limits_forbid_is_not_written() -> None:
    job = submitted(workers=2, batch_size=32, limits={"maximum": 40})
    assert parse_spec(decide(job, 60, 60).spec).batch_size == 32


def test_the_same_submission_comes_again_after_the_ranks_have_reported_their_size() -> None:
    first = decide(submitted("key", batch_size=32), 64, 64)
    assert submitted("key", batch_size=32).pk == first.pk


def test_a_native_job_stays_as_it_was_submitted() -> None:
    user, _ = User.objects.get_or_create(username="ann")
    job = job_submit(document=SPEC, user=user).job
    before = dict(job.spec)
    assert decide(job, 1, 2, 3).spec == before
