"""Formats all API errors as RFC 9457 problem+json, with ``errors`` for invalid fields."""

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.core.signals import got_request_exception
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.template import loader
from django.utils.deprecation import MiddlewareMixin
from django.views import defaults
from rest_framework import exceptions
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response

from controlplane.api import busy
from controlplane.api.tracing import current_trace
from controlplane.jobs.documents import shown
from controlplane.jobs.stored_specs import UnreadableSpec
from controlplane.protocol.spec import SpecError
from paceline.cli.places import MANAGE

CONTENT_TYPE = "application/problem+json"

FIELDS_AT_FAULT = "urn:paceline:problem:fields"
"""The type of problems with ``errors``; others have no type, and the title of their status."""

HOW_TO_BE_LET_IN = f"Send Authorization: Bearer TOKEN; {MANAGE} access NAME --token creates a token."

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldError:
    """One invalid field: its path, the found value, and the expected one."""

    field: str
    found: Any
    expected: str

    @property
    def document(self) -> dict[str, Any]:
        """The field as a problem contains it."""
        return {"field": self.field, "found": shown(self.found), "expected": self.expected}


class Problem(exceptions.APIException):
    """An error with a status, a sentence, and any invalid fields."""

    def __init__(
        self, status: int, detail: str, *, errors: Sequence[FieldError] = (), headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status_code = status
        self.errors = list(errors)
        self.headers = headers or {}


def spec_problem(error: SpecError) -> Problem:
    """A spec that cannot be accepted."""
    fault = FieldError(field=error.field, found=error.found, expected=error.expected)
    return Problem(400, f"{error.field or 'spec'}: expected {error.expected}", errors=[fault])


def document(status: int, detail: str, errors: Sequence[FieldError] = ()) -> dict[str, Any]:
    """The body, with the trace ID of the request.

    The first fault's members are repeated at the top level, for clients that read only those.
    """
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
    }
    if trace := current_trace():
        body["trace_id"] = trace
    if errors:
        body |= {"type": FIELDS_AT_FAULT, "title": "The request has invalid fields"}
        body |= errors[0].document | {"errors": [error.document for error in errors]}
    return body


def handle(error: Exception, context: dict[str, Any]) -> Response:
    """REST framework's exception handler: all views return errors in this format."""
    problem = _as_problem(error, context)
    if busy.is_busy(error):
        logger.warning("the database is busy: %s", error)
    elif problem.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, exceptions.APIException):
        request: HttpRequest | None = getattr(context.get("request"), "_request", None)
        logger.error("request failed", exc_info=error, extra={"path": getattr(request, "path", "")})
        got_request_exception.send(sender=None, request=request)
    if (request := context.get("request")) is not None:  # views with other renderers also send errors as JSON
        request.accepted_renderer, request.accepted_media_type = JSONRenderer(), JSONRenderer.media_type
    body = document(problem.status_code, str(problem.detail), problem.errors)
    return Response(body, status=problem.status_code, headers=problem.headers, content_type=CONTENT_TYPE)


def plain_response(status: int, detail: str, headers: dict[str, str] | None = None) -> HttpResponse:
    """A problem outside REST framework."""
    return JsonResponse(document(status, detail), status=status, headers=headers, content_type=CONTENT_TYPE)


class BusyDatabase(MiddlewareMixin):
    """Responds for a view that met a busy database; REST framework's views do so themselves."""

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """The answer; None for any other error."""
        return _busy_answer(request, error) if busy.is_busy(error) else None


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's handler of 400."""
    if expects_problem(request):
        return plain_response(400, "the request is malformed")
    return defaults.bad_request(request, exception)


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's handler of 403."""
    if expects_problem(request):
        return plain_response(403, "this is not allowed")
    return defaults.permission_denied(request, exception)


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's handler of 404."""
    if expects_problem(request):
        return plain_response(404, f"not found: {shown(request.path)}")
    return defaults.page_not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    """Django's handler of 500, called while the exception is being handled."""
    if error := busy.busy_error_now():
        return _busy_answer(request, error)
    if expects_problem(request):
        return plain_response(500, INTERNAL)
    return defaults.server_error(request)


INTERNAL = "internal error; see the log of the web process"


def _busy_answer(request: HttpRequest, error: BaseException) -> HttpResponse:
    """A problem document or an error page, without any database query, not even for the user."""
    logger.warning("the database is busy: %s", error, extra={"path": request.path})
    if expects_problem(request):
        return plain_response(503, busy.explanation(error), busy.headers())
    page = loader.render_to_string("503.html", {"sentence": busy.explanation(error)})
    return HttpResponse(page, status=503, headers=busy.headers())


def expects_problem(request: HttpRequest) -> bool:
    """Whether the client reads problems, not pages."""
    return request.path.startswith("/api/")


def _missing(detail: str, context: dict[str, Any]) -> str:
    """The text of a 404: Django names the model class; clients need the kind of object and its parent."""
    request = context.get("request")
    found = re.fullmatch(r"No (\w+) matches the given query\.", detail)
    if found is None or request is None:
        return detail or "not found"
    noun = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", found[1]).lower()
    return f"no {noun} that you may see exists at {shown(request.path)}"


def _as_problem(error: Exception, context: dict[str, Any]) -> Problem:
    match error:
        case Problem():
            return error
        case UnreadableSpec():
            return Problem(409, str(error))
        case SpecError():
            return spec_problem(error)
        case exceptions.ValidationError():
            return _validation_problem(error, context)
        case exceptions.NotAuthenticated() | exceptions.AuthenticationFailed():
            return Problem(error.status_code, f"{_sentence(error.detail)} {HOW_TO_BE_LET_IN}", headers=_headers(error))
        case exceptions.UnsupportedMediaType():
            read = ", ".join(each.media_type for each in context["view"].get_parsers())
            return Problem(error.status_code, f"{_sentence(error.detail)} Content-Type can be: {read}")
        case exceptions.APIException():
            return Problem(error.status_code, _sentence(error.detail), headers=_headers(error))
        case Http404():
            return Problem(404, _missing(str(error), context))
        case PermissionDenied():
            return Problem(403, str(error) or "this is not allowed")
        case RequestDataTooBig():
            return Problem(413, str(error))
        case SuspiciousOperation():
            return Problem(400, "the request is malformed")
        case _ if busy.is_busy(error):
            return Problem(503, busy.explanation(error), headers=busy.headers())
        case _:
            return Problem(500, INTERNAL)


def _headers(error: exceptions.APIException) -> dict[str, str]:
    headers = {}
    if challenge := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = challenge
    if wait := getattr(error, "wait", None):
        headers["Retry-After"] = str(int(wait))
    return headers


def _validation_problem(error: exceptions.ValidationError, context: dict[str, Any]) -> Problem:
    request = context.get("request")
    given = {**request.query_params.dict(), **_body_of(request)} if request is not None else {}
    faults = [
        FieldError(field=field, found=given.get(field.partition(".")[0]), expected=sentence)
        for field, sentence in _flat(error.detail)
    ]
    sentence = "; ".join(f"{fault.field}: {fault.expected}" if fault.field else fault.expected for fault in faults)
    return Problem(400, sentence, errors=faults)


def _body_of(request: Any) -> dict[str, Any]:
    return dict(request.data) if isinstance(getattr(request, "_full_data", None), dict) else {}


def _flat(detail: Any, field: str = "") -> Iterator[tuple[str, str]]:
    """Serializer errors as (field, sentence)."""
    if isinstance(detail, dict):
        for key, value in detail.items():
            name = "" if key == "non_field_errors" else str(key)
            yield from _flat(value, f"{field}.{name}".strip("."))
    elif isinstance(detail, list):
        for value in detail:
            yield from _flat(value, field)
    else:
        yield field, str(detail)


def _sentence(detail: Any) -> str:
    return "; ".join(sentence for _, sentence in _flat(detail))
