"""Django's admin for rows that only services and ingest write."""

from django.contrib import admin
from django.http import HttpRequest


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Rows to look at. Deleting is allowed where a subclass says so."""

    may_delete = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Rows cannot be added by hand."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Rows cannot be changed by hand."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Only what nothing else depends on can be deleted."""
        return self.may_delete and super().has_delete_permission(request, obj)
