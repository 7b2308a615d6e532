"""Permissions of roles: a view names the roles for reading and writing; the default for writing is admin."""

from typing import Any

from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from controlplane.jobs.roles import Role, may, role_of


class HasRole(BasePermission):
    """Closed by default: reading requires ``read_role`` (viewer), writing ``write_role`` (admin)."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Whether the user's role is sufficient; the refusal names the required one."""
        reading = request.method in SAFE_METHODS
        needed = getattr(view, "read_role", Role.VIEWER) if reading else getattr(view, "write_role", Role.ADMIN)
        held = role_of(request.user)
        self.message = (
            f"this requires the role {needed}; your role is {held or 'none'}. An admin can add you to that group"
        )
        return may(request.user, needed)
