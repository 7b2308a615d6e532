"""What a submission writes, and what is audited."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from controlplane.jobs.models import AuditEntry, Job
from controlplane.jobs.sealing import unseal
from controlplane.jobs.services import IdempotencyConflict, job_model_saved, job_submit
from controlplane.protocol.optimizers import OPTIMIZERS
from controlplane.protocol.spec import SpecError, parse_spec
from tests.support.rows import SPEC


@pytest.fixture
def ada(db: None) -> User:
    return User.objects.create_user("ada")


def test_a_submission_is_a_row_and_an_audit_entry(ada: User) -> None:
    found = job_submit(document=SPEC, user=ada)
    job = Job.objects.get()
    assert (found.created, found.job, job.name, job.state, parse_spec(job.spec)) == (
        True,
        job,
        "digits",
        "submitted",
        parse_spec(SPEC),
    )
    entry = AuditEntry.objects.get()
    assert (entry.actor, entry.action, entry.subject, entry.detail) == (
        "ada",
        "job-submit",
        f"job {job.pk} (digits)",
        {"spec": job.spec},
    )


def test_every_job_has_a_key_of_its_own(ada: User) -> None:
    keys = {unseal(job_submit(document=SPEC, user=ada).job.key) for _ in range(2)}
    assert sorted(len(key) for key in keys) == [32, 32]


def test_a_job_without_a_price_has_the_installations(ada: User, settings: Any) -> None:
    hours = []
    for price, energy in ((None, {}), ((2.0, "EUR"), {"kwh": 0.3}), ((2.0, "EUR"), {"hour": 0.0})):
        settings.WORKER_HOUR = price
        hours.append(parse_spec(job_submit(document=SPEC | {"energy": energy}, user=ada).job.spec).energy.hour)
    assert hours == [None, 2.0, 0.0]


def test_the_same_key_and_spec_lead_to_the_same_job(ada: User) -> None:
    first = job_submit(document=SPEC, user=ada, idempotency_key="k")
    again = job_submit(document=SPEC, user=ada, idempotency_key="k")
    assert (again.job.pk, again.created, Job.objects.count(), AuditEntry.objects.count()) == (first.job.pk, False, 1, 1)


def test_the_same_key_with_another_spec_is_a_conflict(ada: User) -> None:
    job = job_submit(document=SPEC, user=ada, idempotency_key="k").job
    with pytest.raises(IdempotencyConflict, match=f"belongs to job {job.pk}, which has another spec; send a new key"):
        job_submit(document=SPEC | {"seed": 8}, user=ada, idempotency_key="k")


def test_keys_of_two_users_do_not_meet(ada: User) -> None:
    job_submit(document=SPEC, user=ada, idempotency_key="k")
    assert job_submit(document=SPEC, user=User.objects.create_user("bob"), idempotency_key="k").created


@pytest.mark.django_db(transaction=True)
def test_of_many_submissions_under_one_key_one_makes_a_job() -> None:
    user = User.objects.create_user("ada")

    def submit(_: int) -> int:
        try:
            return job_submit(document=SPEC, user=user, idempotency_key="k").job.pk
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as threads:
        jobs = set(threads.map(submit, range(6)))
    assert (len(jobs), Job.objects.count(), AuditEntry.objects.count()) == (1, 1, 1)


NAMES = f"one of {', '.join(OPTIMIZERS)}, or module:factory for one that you wrote"


@pytest.mark.parametrize(
    ("change", "field", "found", "expected"),
    [
        (
            {"workload": {"name": "als", "dataset": "imagenet"}},
            "workload.dataset",
            "imagenet",
            "one of movielens-like for als",
        ),
        (
            {"workload": {"name": "cnn", "options": {"depth": 3}}},
            "workload.options.depth",
            3,
            "none: cnn has no options",
        ),
        ({"optimizer": {"name": "lion"}}, "optimizer.name", "lion", NAMES),
        (
            {
                "workload": {"name": "cnn", "partition": "iid"},
                "synchronization": {"data": "rotation"},
            },
            "workload.partition",
            "iid",
            "none with data rotation, which divides the samples itself",
        ),
        (
            {"synchronization": {"batching": "psychic"}},
            "synchronization.batching.name",
            "psychic",
            "one of deadline, lb-bsp-cpu, lb-bsp-federated, lb-bsp-gpu, lb-bsp-linear, uniform",
        ),
        ({"workers": 0}, "workers", 0, "`int` >= 1"),
        ({"seed": 2**70}, "seed", "an integer of 71 bits", "an integer of at most 64 bits"),
        ({"name": "a\x00b"}, "name", "a\\x00b", "text without NUL characters"),
    ],
)
def test_what_cannot_run_is_refused_by_field(
    ada: User, change: dict[str, Any], field: str, found: object, expected: str
) -> None:
    with pytest.raises(SpecError) as caught:
        job_submit(document=SPEC | change, user=ada)
    assert (caught.value.field, caught.value.found, caught.value.expected) == (field, found, expected)
    assert not Job.objects.exists()


def test_a_saved_model_is_remembered(ada: User, tmp_path: Path) -> None:
    job = job_submit(document=SPEC, user=ada).job
    (tmp_path / "1.npz").write_bytes(b"12345")
    job_model_saved(job_id=job.pk, path=tmp_path / "1.npz")
    job.refresh_from_db()
    assert (job.model_path, job.model_bytes) == (str(tmp_path / "1.npz"), 5)
