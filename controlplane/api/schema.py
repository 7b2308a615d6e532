"""Extends the OpenAPI document: error responses of every operation, and the JSON schema of the job spec."""

from functools import cache
from typing import Any

import msgspec
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse

from controlplane.api.problems import CONTENT_TYPE
from controlplane.api.serializers.problems import ProblemDocument
from controlplane.protocol.spec import JobSpec

IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
    OpenApiParameter.HEADER,
    description="A repeated request with the same key and document returns the same job.",
)
IF_NONE_MATCH = OpenApiParameter("If-None-Match", OpenApiTypes.STR, OpenApiParameter.HEADER)

REASONS = {
    400: "The request is invalid; ``errors`` lists the fields.",
    401: "Authentication is missing or invalid.",
    403: "The user lacks the required role.",
    404: "The resource does not exist.",
    409: "The state of the resource does not allow this.",
    412: "The resource has changed since it was read.",
    413: "The body is too large.",
    415: "The media type of the body is not supported.",
    422: "The idempotency key was used with a different document, or the request is contradictory.",
    428: "If-Match is required.",
    429: "Too many requests in a minute; retry after ``Retry-After``.",
    503: "A required service is unavailable.",
}


def declare_problems(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """A post-processing hook: declares the error responses of every operation, and their format."""
    for path, operations in result["paths"].items():
        for method, operation in operations.items():
            responses = operation["responses"]
            for code in _codes(path, method, operation):
                responses.setdefault(str(code), _problem(code))
            operation["responses"] = dict(sorted(responses.items()))
    return result


def _codes(path: str, method: str, operation: dict[str, Any]) -> set[int]:
    codes = {400, 429}
    codes |= {404} if "{" in path or method == "get" else set()
    codes |= {401, 403} if {} not in operation.get("security", [{}]) else set()
    return codes | ({413, 415} if method in {"post", "put", "patch"} else set())


def _problem(code: int) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/ProblemDocument"}
    return {"description": REASONS[code], "content": {CONTENT_TYPE: {"schema": schema}}}


class ApiTokenScheme(OpenApiAuthenticationExtension):
    """Describes API tokens in the OpenAPI document."""

    target_class = "controlplane.api.authentication.ApiToken"
    name = "token"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        """The scheme."""
        return {"type": "http", "scheme": "bearer"}


class JobTokenScheme(OpenApiAuthenticationExtension):
    """Describes jobs' tokens in the OpenAPI document."""

    target_class = "controlplane.api.attached.JobTokenShown"
    name = "jobToken"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        """The scheme."""
        return {"type": "http", "scheme": "bearer", "description": "The token of an attached job."}


def problem_responses(*codes: int) -> dict[tuple[int, str], OpenApiResponse]:
    """Error responses by status."""
    return {(code, CONTENT_TYPE): OpenApiResponse(ProblemDocument, REASONS[code]) for code in sorted(codes)}


@cache
def job_spec_schema() -> dict[str, Any]:
    """The job spec as JSON schema, its parts inlined and policies as users write them: flat, or a bare name."""
    (top,), parts = msgspec.json.schema_components([JobSpec], ref_template="{name}")
    parts["Choice"] = _choice_schema()
    schema = dict(_inline(parts[top["$ref"]], parts))
    schema["required"] = ["name"]  # for attached jobs; for native ones the error names missing fields
    return schema


def struct_bodies(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Request bodies of a document that is parsed into such a struct, by media type."""
    (top,), parts = msgspec.json.schema_components([kind], ref_template="{name}")
    schema = _inline(parts[top["$ref"]], parts)
    return {"application/json": schema, "application/yaml": schema}


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
