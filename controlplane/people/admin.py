"""The parts of Django's admin that allow changes, such as users and groups: every change is also in the audit trail."""

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from knox.models import AuthToken

from controlplane.fleet.admin import AgentAdmin, EnrolmentTokenAdmin
from controlplane.fleet.models import Agent, EnrolmentToken
from controlplane.fleet.readonly import ReadOnlyAdmin
from controlplane.jobs.services import audit

for model in (User, Group, AuthToken, Agent, EnrolmentToken):
    admin.site.unregister(model)

MOST = 500
"""Most characters of an entry's detail."""


class Audited(admin.ModelAdmin):  # type: ignore[type-arg]
    """Writes changes to the audit trail. Django's own admin log is not part of it, and can be changed."""

    def log_addition(self, request: HttpRequest, obj: Model, message: Any) -> Any:
        """Record an added object."""
        self._audit(request, "create", obj, "")
        return super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: Model, message: Any) -> Any:
        """Record a changed object; the message names the fields."""
        self._audit(request, "change", obj, message)
        return super().log_change(request, obj, message)

    def log_deletions(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        """Record deleted objects."""
        for row in queryset:
            self._audit(request, "delete", row, "")
        return super().log_deletions(request, queryset)

    def _audit(self, request: HttpRequest, verb: str, row: Model, message: Any) -> None:
        kind = row._meta.model_name
        detail = {"in": "Django's admin"} | _state(row)
        if message:
            detail["changed"] = str(message)[:MOST]
        actor = request.user.get_username()
        audit(actor=actor, action=f"{kind}-{verb}", subject=f"{kind} {row}", detail=detail)


@admin.register(User)
class AuditedUserAdmin(Audited, UserAdmin):  # type: ignore[type-arg]
    """Accounts."""


@admin.register(Group)
class AuditedGroupAdmin(Audited, GroupAdmin):
    """Roles: the names that Paceline knows are viewer, operator and admin."""


@admin.register(Agent)
class AuditedAgentAdmin(Audited, AgentAdmin):
    """Machines, which can be removed."""


@admin.register(EnrolmentToken)
class AuditedEnrolmentTokenAdmin(Audited, EnrolmentTokenAdmin):
    """Enrolment tokens, which can be removed."""


@admin.register(AuthToken)
class TokenAdmin(ReadOnlyAdmin):
    """API tokens, read-only: the page *Tokens and sessions* revokes them."""

    list_display = ("token_key", "user", "created", "expiry")
    exclude = ("digest",)


def _state(row: Model) -> dict[str, Any]:
    if not isinstance(row, User):
        return {}
    groups = sorted(row.groups.values_list("name", flat=True)) if row.pk else []
    return {"active": row.is_active, "superuser": row.is_superuser, "groups": groups}
