"""Forms for notes and tags of a job; they redirect back to the page."""

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from controlplane.jobs.models import Job
from controlplane.jobs.roles import Role
from frontend.models import JobNote
from frontend.parameters import readable, whole
from frontend.queries import notes
from frontend.views.access import holds, needs


@needs(Role.OPERATOR)
@require_POST
def note_add(request: HttpRequest, job_id: int) -> HttpResponse:
    """Add a note to the job, at an iteration or now."""
    job = get_object_or_404(Job, pk=job_id)
    readable(request.POST)
    iteration = whole(request.POST, "iteration", 0, 2**31 - 1)
    notes.note_add(job=job, actor=_name(request), text=request.POST.get("text", ""), iteration=iteration)
    return redirect(f"{reverse('job', args=[job.pk])}#job-notes")


@needs(Role.OPERATOR)
@require_POST
def note_delete(request: HttpRequest, job_id: int, note_id: int) -> HttpResponse:
    """Delete a note: one's own, or any note as an admin."""
    note = get_object_or_404(JobNote, pk=note_id, job=get_object_or_404(Job, pk=job_id))
    if note.actor != _name(request) and not holds(request, Role.ADMIN):
        raise PermissionDenied(f"this note is by {note.actor}: ask them or an admin to delete it")
    notes.note_delete(note=note, actor=_name(request))
    return redirect(f"{reverse('job', args=[job_id])}#job-notes")


@needs(Role.OPERATOR)
@require_POST
def tags_set(request: HttpRequest, job_id: int) -> HttpResponse:
    """Replace the job's tags."""
    job = get_object_or_404(Job, pk=job_id)
    readable(request.POST)
    notes.tags_set(job=job, actor=_name(request), names=request.POST.get("tags", "").split(","))
    return redirect(reverse("job", args=[job.pk]))


def _name(request: HttpRequest) -> str:
    return request.user.get_username()
