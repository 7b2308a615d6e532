"""Tables of user annotations: notes and tags on jobs, saved views and pinned charts. The engine reads none of them."""

from django.conf import settings
from django.db import models


class JobNote(models.Model):
    """A user's note on a job at an iteration, shown on charts."""

    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="notes")
    iteration = models.PositiveIntegerField()
    at = models.DateTimeField()
    """The time of that iteration, or when the note was written."""
    actor = models.CharField(max_length=150)
    text = models.CharField(max_length=1000)
    created_at = models.DateTimeField(auto_now_add=True)


class JobTag(models.Model):
    """One tag of a job."""

    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="tags", db_index=False)
    name = models.CharField(max_length=40, db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "name"], name="each_tag_once_per_job")]


class SavedView(models.Model):
    """A page's URL with all its view settings, or one of its charts, saved by a user for personal use."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_views")
    name = models.CharField(max_length=100)
    address = models.CharField(max_length=2000)
    """Path and query of the page."""
    figure = models.CharField(max_length=60, default="", blank=True)
    """The name of a pinned chart; empty for a view."""
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "address", "figure"], name="each_view_once_per_user"),
        ]
