"""The OpenAPI document: what every operation can answer, and the job spec as JSON schema from its structs."""

from functools import cache
from typing import Any

import msgspec
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse

from controlplane.api.problems import CONTENT_TYPE
from controlplane.api.serializers import ProblemDocument
from controlplane.protocol.spec import JobSpec

IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
    OpenApiParameter.HEADER,
    description="Sent again with the same document, it leads to the same job.",
)
IF_NONE_MATCH = OpenApiParameter("If-None-Match", OpenApiTypes.STR, OpenApiParameter.HEADER)

REASONS = {
    400: "The request cannot be accepted; ``errors`` names the fields.",
    401: "It does not say who asks.",
    403: "Whoever asks may not.",
    404: "There is no such thing.",
    409: "It is in a state that does not allow this.",
    413: "The body is too large.",
    415: "The body is of a media type that is not read.",
    422: "The idempotency key came before, with another document.",
    503: "Something that is needed does not answer.",
}


class Schema(AutoSchema):
    """Adds the problem document to what every operation can answer."""

    def get_response_serializers(self) -> Any:
        """What the view declares, and the errors that any view gives."""
        declared = super().get_response_serializers()
        if not isinstance(declared, dict):
            declared = {"204" if self.method == "DELETE" else "200": declared}
        codes = {400, 404} | ({401, 403} if self.view.permission_classes and self.get_auth() else set())
        if self.method in {"POST", "PUT"}:
            codes |= {413, 415}
        known = {int(key[0] if isinstance(key, tuple) else key) for key in declared}
        return declared | problem_responses(*(codes - known))


class ApiTokenScheme(OpenApiAuthenticationExtension):
    """How the OpenAPI document names it."""

    target_class = "controlplane.api.authentication.ApiToken"
    name = "token"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        """The scheme."""
        return {"type": "http", "scheme": "bearer"}


def problem_responses(*codes: int) -> dict[tuple[int, str], OpenApiResponse]:
    """Error answers by status."""
    return {(code, CONTENT_TYPE): OpenApiResponse(ProblemDocument, REASONS[code]) for code in sorted(codes)}


@cache
def job_spec_schema() -> dict[str, Any]:
    """The job spec as JSON schema, its parts in place and policy choices as they are written: flat, or a bare name."""
    (top,), parts = msgspec.json.schema_components([JobSpec], ref_template="{name}")
    parts["Choice"] = _choice_schema()
    return dict(_inline(parts[top["$ref"]], parts))


def job_spec_bodies() -> dict[str, Any]:
    """Request bodies of a submission, by media type."""
    return {"application/json": job_spec_schema(), "application/yaml": job_spec_schema()}


def _choice_schema() -> dict[str, Any]:
    flat = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string", "minLength": 1}}}
    return {
        "description": "A policy's name, or an object with its name and parameters.",
        "anyOf": [{"type": "string", "minLength": 1}, flat],
    }


def _inline(node: Any, parts: dict[str, Any]) -> Any:
    if isinstance(node, dict):
        if "$ref" in node:
            return _inline(parts[node["$ref"]], parts)
        return {key: _inline(value, parts) for key, value in node.items() if key != "default" or value is not None}
    if isinstance(node, list):
        return [_inline(item, parts) for item in node]
    return node
