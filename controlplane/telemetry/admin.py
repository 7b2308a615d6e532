"""History in Django's admin: ingest's progress. Reports are for figures, not for lists of rows."""

from django.contrib import admin

from controlplane.fleet.readonly import ReadOnlyAdmin
from controlplane.telemetry.models import Cursor, Evaluation


@admin.register(Cursor)
class CursorAdmin(ReadOnlyAdmin):
    """How far each stream is copied."""

    list_display = ("job", "stream", "incarnation", "position")


@admin.register(Evaluation)
class EvaluationAdmin(ReadOnlyAdmin):
    """Scores of the held-out split."""

    list_display = ("job", "iteration", "at", "loss", "accuracy")
