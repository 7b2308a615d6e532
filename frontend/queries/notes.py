"""Reads and writes notes and tags of jobs."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from django.db import transaction
from django.utils import timezone

from controlplane.jobs.models import Job
from controlplane.jobs.services import audit
from controlplane.jobs.viewing import visible
from frontend.models import JobNote, JobTag
from frontend.parameters import QueryError
from frontend.queries.clock import JobClock

MOST_NOTES: Final = 200
MOST_TAGS: Final = 12
TAG: Final = 40
"""Maximum characters of a tag."""


def notes(job: Job) -> list[JobNote]:
    """The notes of a job, latest iterations first."""
    return list(JobNote.objects.filter(job=job).order_by("-iteration", "-id")[:MOST_NOTES])


def tags_of(jobs: Iterable[int]) -> dict[int, list[str]]:
    """Sorted tags by job."""
    found: dict[int, list[str]] = {}
    for job, name in JobTag.objects.filter(job__in=list(jobs)).order_by("name").values_list("job_id", "name"):
        found.setdefault(job, []).append(name)
    return found


def all_tags() -> list[str]:
    """All tags of jobs that the current user may see."""
    rows = visible(JobTag.objects.order_by("name"), "job__team")
    return list(rows.values_list("name", flat=True).distinct()[:200])


@transaction.atomic
def note_add(*, job: Job, actor: str, text: str, iteration: int | None) -> JobNote:
    """Add a note at an iteration; the default is the current one, or the end of a finished job.

    Raises:
        QueryError: for an empty or very long note, or a job that has too many.
    """
    text, now = text.strip(), timezone.now()
    if not 0 < len(text) <= 1000:
        raise QueryError("text", text, "1 to 1000 characters")
    if JobNote.objects.filter(job=job).count() >= MOST_NOTES:
        raise QueryError("text", text, f"at most {MOST_NOTES} notes on a job: delete some first")
    at = job.finished_at or now  # charts end at the job's end
    if iteration is not None and job.started_at is not None:
        at = job.started_at + timedelta(seconds=JobClock(job).elapsed_at(float(iteration)))
    row = JobNote.objects.create(
        job=job, iteration=job.iteration if iteration is None else iteration, at=at, actor=actor[:150], text=text
    )
    audit(actor=actor, action="note-add", subject=str(job), detail={"note": row.pk, "text": text}, job=job)
    return row


@transaction.atomic
def note_delete(*, note: JobNote, actor: str) -> None:
    """Delete a note; the audit log keeps its text."""
    detail = {"note": note.pk, "by": note.actor, "text": note.text}
    audit(actor=actor, action="note-delete", subject=str(note.job), detail=detail, job=note.job)
    note.delete()


@transaction.atomic
def tags_set(*, job: Job, actor: str, names: Iterable[str]) -> list[str]:
    """Replace the tags of a job.

    Raises:
        QueryError: for too many, or a very long one.
    """
    names = sorted({name.strip() for name in names if name.strip()})
    if len(names) > MOST_TAGS or any(len(name) > TAG for name in names):
        raise QueryError(
            "tags", ", ".join(names), f"at most {MOST_TAGS} tags of at most {TAG} characters, separated by commas"
        )
    JobTag.objects.filter(job=job).exclude(name__in=names).delete()
    JobTag.objects.bulk_create([JobTag(job=job, name=name) for name in names], ignore_conflicts=True)
    audit(actor=actor, action="job-tags", subject=str(job), detail={"tags": names}, job=job)
    return names
