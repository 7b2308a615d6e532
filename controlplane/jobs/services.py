"""Writes of jobs other than ingest's: a new row, the path of a saved model, and the audit trail."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from msgspec.structs import replace

from controlplane.core.states import JobState
from controlplane.jobs.models import AuditEntry, Job
from controlplane.jobs.queue import queued_jobs
from controlplane.jobs.validation import validated_spec
from controlplane.protocol.spec import JobSpec, spec_document


class IdempotencyConflict(Exception):
    """An idempotency key was reused with another spec."""

    def __init__(self, job: Job) -> None:
        self.job = job
        super().__init__(f"this Idempotency-Key belongs to job {job.pk}, which has another spec; send a new key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """The job of a submission; ``created`` is False if the same request had been received before."""

    job: Job
    created: bool


def job_submit(
    *,
    document: object,
    user: User,
    idempotency_key: str | None = None,
    team: int | None = None,
    check: Callable[[JobSpec], None] = lambda spec: None,
) -> Submission:
    """Store a new job, owned by the team if one is given. The caller starts its log after the transaction.

    ``check`` may refuse a new job: it is called in the transaction that stores it.

    Raises:
        SpecError: naming the field, what was found and what is allowed.
        IdempotencyConflict: if the key was used before with another spec.
    """
    spec = _priced(validated_spec(document))
    fields = {"name": spec.name, "spec": spec_document(spec), "submitted_by": user, "idempotency_key": idempotency_key}
    fields |= {"priority": spec.priority, "launch": spec.launch, "team_id": team}
    try:
        with transaction.atomic():
            if not _is_known(user, idempotency_key):
                check(spec)
            job = Job.objects.create(**fields)
            audit(actor=user.get_username(), action="job-submit", subject=str(job), detail={"spec": job.spec}, job=job)
    except IntegrityError:
        job = Job.objects.get(submitted_by=user, idempotency_key=idempotency_key)
        if _requested(job.spec) != _requested(fields["spec"]):
            raise IdempotencyConflict(job) from None
        return Submission(job=job, created=False)
    return Submission(job=job, created=True)


def _priced(spec: JobSpec) -> JobSpec:
    """With the installation's price of a worker-hour if the spec has none, so that shares minimize what pages show."""
    if spec.energy.hour is not None or settings.WORKER_HOUR is None:
        return spec
    return replace(spec, energy=replace(spec.energy, hour=settings.WORKER_HOUR[0]))


def _is_known(user: User, key: str | None) -> bool:
    return key is not None and Job.objects.filter(submitted_by=user, idempotency_key=key).exists()


def _requested(spec: Any) -> dict[str, Any]:
    """The document without an attached job's size, which its ranks may have changed since."""
    size = {"workers", "batch_size"} if spec.get("launch") == "attached" else set()
    return {name: value for name, value in spec.items() if name not in size}


@transaction.atomic
def job_prioritise(*, job_id: int, priority: int, actor: str) -> bool:
    """Give a waiting job another priority in the queue; False if it no longer waits."""
    waiting = Job.objects.select_for_update().filter(pk=job_id, state=JobState.SUBMITTED)
    job = waiting.first()
    if job is None:
        return False
    before, job.priority = job.priority, priority
    job.save(update_fields=["priority"])
    audit(actor=actor, action="job-priority", subject=str(job), detail={"from": before, "to": priority}, job=job)
    return True


@transaction.atomic
def job_move(*, job_id: int, before: int | None, actor: str) -> bool:
    """Put a waiting job before another one in the queue, or behind all (None); False if one of them does not wait.

    The job gets the other job's priority, or the lowest one. All waiting jobs of that priority are renumbered.
    """
    waiting = list(queued_jobs().select_for_update())
    job = next((each for each in waiting if each.pk == job_id), None)
    other = next((each for each in waiting if each.pk == before), None)
    if job is None or (before is not None and (other is None or other is job)):
        return False
    detail = {"before": before, "from": job.priority}
    job.priority = other.priority if other else min(each.priority for each in waiting)
    peers = [each for each in waiting if each.priority == job.priority and each is not job]
    peers.sort(key=lambda each: (each.queue_order, each.pk))
    peers.insert(peers.index(other) if other else len(peers), job)
    for number, each in enumerate(peers, start=-len(peers)):  # below 0: jobs submitted later come behind
        each.queue_order = number
    Job.objects.bulk_update(peers, ["queue_order", "priority"])
    audit(actor=actor, action="job-move", subject=str(job), detail=detail | {"to": job.priority}, job=job)
    return True


def job_model_saved(*, job_id: int, path: Path) -> None:
    """Store the path of the job's final parameters."""
    Job.objects.filter(pk=job_id).update(model_path=str(path), model_bytes=path.stat().st_size)


def audit(
    *,
    actor: str,
    action: str,
    subject: str,
    detail: Mapping[str, Any] | None = None,
    job: Job | None = None,
    entry: str = "",
) -> AuditEntry:
    """Store a user's request; ``entry`` is the id of the job's log entry if the engine should answer."""
    fields = {"actor": actor[:150], "action": action, "subject": subject[:100], "detail": dict(detail or {})}
    return AuditEntry.objects.create(**fields, job=job, entry=entry)
