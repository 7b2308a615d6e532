"""The root of the API, and unknown paths in it."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from controlplane.api.problems import Problem
from controlplane.api.views.base import OpenView
from controlplane.jobs.documents import shown

COLLECTIONS = (
    *("jobs", "agents", "workers", "servers", "policies", "workloads", "scenarios", "simulations"),
    *("alerts", "queue", "quotas", "teams", "users", "tokens", "sessions", "audit", "me", "schema", "docs"),
)


class IndexView(OpenView):
    """The root."""

    @extend_schema(responses={200: {"type": "object", "additionalProperties": {"type": "string"}}})
    def get(self, request: Request) -> Response:
        """List the resources of the API."""
        found = {name: reverse(f"api:{name}", request=request) for name in COLLECTIONS}
        return Response(found | {"views": reverse("saved-views", request=request)})  # served by ``frontend``


@extend_schema(exclude=True)
class NowhereView(OpenView):
    """Unknown paths under /api/ get a problem document like any other error."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Reject any method."""
        raise Problem(404, f"not found: {shown(request.path)}; /api/v1/ lists the resources")
