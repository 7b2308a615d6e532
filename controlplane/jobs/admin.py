"""Jobs in Django's admin, read-only: the engine owns their state."""

from django.contrib import admin

from controlplane.fleet.readonly import ReadOnlyAdmin
from controlplane.jobs.models import AuditEntry, Decision, Flag, Job, Process


@admin.register(Job)
class JobAdmin(ReadOnlyAdmin):
    """Training runs."""

    list_display = ("id", "name", "state", "iteration", "accuracy", "submitted_by", "created_at")
    list_filter = ("state",)
    search_fields = ("name",)
    exclude = ("key",)


@admin.register(Process)
class ProcessAdmin(ReadOnlyAdmin):
    """Instances of workers and servers."""

    list_display = ("job", "role", "index", "instance", "agent", "state", "iteration")
    list_filter = ("role", "state")


@admin.register(Decision)
class DecisionAdmin(ReadOnlyAdmin):
    """The engine's decisions."""

    list_display = ("job", "sequence", "at", "kind", "reason")
    list_filter = ("kind",)


@admin.register(Flag)
class FlagAdmin(ReadOnlyAdmin):
    """Findings."""

    list_display = ("job", "rank", "kind", "persistence", "sentence", "opened_at", "closed_at")


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnlyAdmin):
    """Requests of users."""

    list_display = ("at", "actor", "action", "subject")
    list_filter = ("action",)
