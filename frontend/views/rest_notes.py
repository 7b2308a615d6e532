"""REST views of notes and tags of jobs, and of a user's saved views."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.api.problems import FieldError, Problem
from controlplane.api.schema import problem_responses
from controlplane.api.serializers.fields import NameField
from controlplane.api.views.base import ApiListView, ApiView, user_of
from controlplane.jobs.models import Job
from controlplane.jobs.roles import ORDER, Role, role_on
from frontend.models import JobNote, SavedView
from frontend.parameters import QueryError
from frontend.queries import notes
from frontend.queries.saved_views import save

MOST_ITERATION = 2**31 - 1


class NoteRow(serializers.ModelSerializer[JobNote]):
    """A note on a job."""

    class Meta:
        model = JobNote
        fields = ("id", "iteration", "at", "actor", "text", "created_at")
        read_only_fields = fields


class NoteRequest(serializers.Serializer[Any]):
    """A note to add."""

    text = serializers.CharField(max_length=1000)
    iteration = serializers.IntegerField(
        min_value=0,
        max_value=MOST_ITERATION,
        required=False,
        allow_null=True,
        default=None,
        help_text="Iteration of the note; null: now, or the job's end.",
    )


class TagField(NameField):
    """One tag, without commas."""

    def to_internal_value(self, data: Any) -> str:
        """The tag.

        Raises:
            ValidationError: for a tag with a comma, or a blank one.
        """
        text = str(super().to_internal_value(data)).strip()
        if not text or "," in text:
            raise serializers.ValidationError("Expected a tag that is not empty and has no commas.")
        return text


class TagsDocument(serializers.Serializer[Any]):
    """The tags of a job, in order."""

    tags = serializers.ListField(child=TagField(max_length=notes.TAG), max_length=notes.MOST_TAGS)


class ViewRow(serializers.ModelSerializer[SavedView]):
    """A saved view, or a pinned chart."""

    class Meta:
        model = SavedView
        fields = ("id", "name", "address", "figure", "created_at")
        read_only_fields = fields


class ViewRequest(serializers.Serializer[Any]):
    """A page to save, or a chart of it to pin."""

    name = NameField()
    address = serializers.CharField(max_length=2000, help_text="Path and query of a page: /jobs/?state=running")
    figure = serializers.CharField(
        max_length=60, required=False, allow_blank=True, default="", help_text="A job page's chart; empty: the page."
    )


class NotesView(ApiListView[JobNote]):
    """Notes on a job."""

    write_role = Role.OPERATOR
    serializer_class = NoteRow
    queryset = JobNote.objects.none()

    def get_queryset(self) -> "QuerySet[JobNote]":
        """The notes, latest iterations first."""
        job = get_object_or_404(Job, pk=self.kwargs["pk"])
        return JobNote.objects.filter(job=job).order_by("-iteration", "-id")

    @extend_schema(request=NoteRequest, responses={201: NoteRow, **problem_responses(400, 404)})
    def post(self, request: Request, pk: int) -> Response:
        """Add a note, which the job's charts show at its iteration."""
        job, fields = get_object_or_404(Job, pk=pk), _valid(NoteRequest, request)
        with _problems():
            row = notes.note_add(job=job, actor=user_of(request).get_username(), **fields)
        return Response(NoteRow(row).data, status=201)


class NoteView(ApiView):
    """One note."""

    write_role = Role.OPERATOR

    @extend_schema(request=None, responses={204: None, **problem_responses(403, 404)})
    def delete(self, request: Request, pk: int, note: int) -> Response:
        """Delete one's own note, or any note as an admin."""
        job, user = get_object_or_404(Job, pk=pk), user_of(request)
        row = get_object_or_404(JobNote.objects.select_related("job"), pk=note, job=job)
        held = role_on(user, row.job.team_id)
        if row.actor != user.get_username() and (held is None or ORDER.index(held) < ORDER.index(Role.ADMIN)):
            raise Problem(403, f"this note is by {row.actor}: ask them or an admin to delete it")
        notes.note_delete(note=row, actor=user.get_username())
        return Response(status=204)


class TagsView(ApiView):
    """The tags of a job."""

    write_role = Role.OPERATOR

    @extend_schema(responses={200: TagsDocument, **problem_responses(404)})
    def get(self, request: Request, pk: int) -> Response:
        """The job's tags."""
        job = get_object_or_404(Job, pk=pk)
        return Response(TagsDocument({"tags": notes.tags_of([job.pk]).get(job.pk, [])}).data)

    @extend_schema(request=TagsDocument, responses={200: TagsDocument, **problem_responses(400, 404)})
    def put(self, request: Request, pk: int) -> Response:
        """Replace the job's tags."""
        job, fields = get_object_or_404(Job, pk=pk), _valid(TagsDocument, request)
        with _problems():
            names = notes.tags_set(job=job, actor=user_of(request).get_username(), names=fields["tags"])
        return Response(TagsDocument({"tags": names}).data)


class SavedViewsView(ApiListView[SavedView]):
    """Your saved views and pinned charts."""

    write_role = Role.VIEWER
    serializer_class = ViewRow
    queryset = SavedView.objects.none()

    def get_queryset(self) -> "QuerySet[SavedView]":
        """One's own."""
        return SavedView.objects.filter(user=user_of(self.request)).order_by("id")

    @extend_schema(request=ViewRequest, responses={201: ViewRow, **problem_responses(400)})
    def post(self, request: Request) -> Response:
        """Save the URL of a page under a name, or pin one of its charts. Saving it again renames it."""
        fields = _valid(ViewRequest, request)
        with _problems():
            row = save(user=user_of(request), **fields)
        return Response(ViewRow(row).data, status=201)


class SavedViewView(ApiView):
    """One of your saved views."""

    write_role = Role.VIEWER

    @extend_schema(request=None, responses={204: None, **problem_responses(404)})
    def delete(self, request: Request, pk: int) -> Response:
        """Delete it."""
        get_object_or_404(SavedView, pk=pk, user=user_of(request)).delete()
        return Response(status=204)


def _valid(kind: Any, request: Request) -> dict[str, Any]:
    serializer = kind(data=request.data)
    serializer.is_valid(raise_exception=True)
    return dict(serializer.validated_data)


@contextmanager
def _problems() -> Iterator[None]:
    try:
        yield
    except QueryError as error:
        fault = FieldError(field=error.field, found=error.found, expected=error.expected)
        raise Problem(400, str(error), errors=[fault]) from None
