"""The fleet in Django's admin: read-only, except that offline machines can be deleted."""

from django.contrib import admin

from controlplane.fleet.models import Agent, EnrolmentToken, Reservation
from controlplane.fleet.readonly import ReadOnlyAdmin


@admin.register(Agent)
class AgentAdmin(ReadOnlyAdmin):
    """Machines."""

    may_delete = True
    list_display = ("name", "state", "host", "labels", "server_slots", "seen_at")
    list_filter = ("state",)
    exclude = ("credential_digest", "next_digest")


@admin.register(Reservation)
class ReservationAdmin(ReadOnlyAdmin):
    """Slots that jobs hold."""

    list_display = ("job_id", "role", "index", "agent", "slot")


@admin.register(EnrolmentToken)
class EnrolmentTokenAdmin(ReadOnlyAdmin):
    """Enrolment tokens."""

    may_delete = True
    list_display = ("labels", "created_by", "created_at", "expires_at", "used_at")
    exclude = ("digest",)
