"""Django's admin for rows that only services and ingest write."""

from django.contrib import admin
from django.http import HttpRequest


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Read-only rows. Deleting is allowed if a subclass enables it."""

    may_delete = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody can add rows."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Nobody can change rows."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Only rows without dependants can be deleted."""
        return self.may_delete and super().has_delete_permission(request, obj)
