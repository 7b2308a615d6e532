"""The fleet in Django's admin: to look at, and to forget machines that are gone."""

from django.contrib import admin
from django.http import HttpRequest

from controlplane.fleet.models import Agent, EnrolmentToken, Reservation


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Rows that only services write."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody adds rows by hand."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Nobody changes rows by hand."""
        return False


@admin.register(Agent)
class AgentAdmin(ReadOnlyAdmin):
    """Machines."""

    list_display = ("name", "state", "host", "labels", "server_slots", "seen_at")
    list_filter = ("state",)
    exclude = ("credential_digest",)


@admin.register(Reservation)
class ReservationAdmin(ReadOnlyAdmin):
    """Slots that jobs hold."""

    list_display = ("job_id", "role", "index", "agent", "slot")


@admin.register(EnrolmentToken)
class EnrolmentTokenAdmin(ReadOnlyAdmin):
    """Invitations of machines."""

    list_display = ("labels", "created_by", "created_at", "expires_at", "used_at")
    exclude = ("digest",)
