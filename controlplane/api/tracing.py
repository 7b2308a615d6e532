"""Assigns a trace ID to each request, which is in its log lines, its response header and its problem documents.

A user can quote it in an error report, and an operator can find it in the web process's log.
"""

import re
import secrets
from typing import Final

import structlog
from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin

HEADER: Final = "X-Trace-Id"
GIVEN: Final = re.compile(r"[\w.-]{8,64}", re.ASCII)
"""Valid trace IDs from a proxy."""

_NAME: Final = "trace_id"


class Tracing(MiddlewareMixin):
    """Middleware that must precede all other."""

    def process_request(self, request: HttpRequest) -> None:
        """Use the ID from the proxy, or create one."""
        given = request.headers.get(HEADER, "")
        trace = given if GIVEN.fullmatch(given) else secrets.token_hex(8)
        structlog.contextvars.bind_contextvars(**{_NAME: trace})

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Set the response header, and reset the id."""
        if trace := current_trace():
            response[HEADER] = trace
        structlog.contextvars.unbind_contextvars(_NAME)
        return response


def current_trace() -> str:
    """The id of the current request; empty outside of one."""
    return str(structlog.contextvars.get_contextvars().get(_NAME, ""))
