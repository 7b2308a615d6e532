"""One id for each request: in every line that is logged for it, in its answer's header, and in a problem.

So whoever is told of an error can name it, and whoever reads the log of the web process finds it.
"""

import re
import secrets
from typing import Final

import structlog
from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin

HEADER: Final = "X-Trace-Id"
GIVEN: Final = re.compile(r"[\w.-]{8,64}", re.ASCII)
"""What a proxy before us may have named it."""

_NAME: Final = "trace_id"


class Tracing(MiddlewareMixin):
    """Stands before all other middleware."""

    def process_request(self, request: HttpRequest) -> None:
        """Take the id that was given, or make one."""
        given = request.headers.get(HEADER, "")
        trace = given if GIVEN.fullmatch(given) else secrets.token_hex(8)
        structlog.contextvars.bind_contextvars(**{_NAME: trace})

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Say it, and forget it."""
        if trace := current_trace():
            response[HEADER] = trace
        structlog.contextvars.unbind_contextvars(_NAME)
        return response


def current_trace() -> str:
    """The id of the request that is answered; empty outside of one."""
    return str(structlog.contextvars.get_contextvars().get(_NAME, ""))
