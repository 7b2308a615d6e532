"""Limits requests per minute of each user (by role) or network, and rejected requests of each network.

Counters are in Redis, shared by all web processes, in a sliding window: the previous minute counts by its fraction
within the last 60 s. While Redis does not answer, requests are not limited, and a warning is logged.
"""

import time
from typing import Any, Final

import redis.exceptions
import structlog
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from controlplane.api.problems import Problem, expects_problem, plain_response
from controlplane.jobs.roles import role_of
from controlplane.people.addresses import client_address, network_of
from controlplane.runtime.redis import shared

WINDOW_S: Final = 60
STRANGERS: Final = (3_000, 3_000)
"""Read and write requests of one network without a user: machines that join, launchers of jobs."""

REFUSED: Final = 600
"""Rejections (401, 403, 404) of one network, against guessing of tokens, IDs and paths."""

REFUSALS: Final = frozenset({401, 403, 404})

PAGES: Final = 4
"""Factor of the read limit for pages, which refresh their parts."""

REST_S: Final = 5.0
"""After an error, Redis is not used for this long, so that requests do not wait for it."""

_away_until = 0.0
_is_counting = True
"""Whether Redis answered last time."""

logger = structlog.get_logger(__name__)


class Rates(BaseThrottle):
    """REST framework's throttle of all views."""

    def allow_request(self, request: Request, view: Any) -> bool:
        """Whether the request is within the limit.

        Raises:
            Problem: 429, with ``Retry-After``.
        """
        found = excess(request._request, user=request.user, reading=request.method in SAFE_METHODS)
        if found is not None:
            limit, wait_s = found
            raise Problem(429, sentence(limit, wait_s), headers={"Retry-After": str(wait_s)})
        return True


class Refusals(MiddlewareMixin):
    """Counts rejected requests by network. Above the limit, rejections become 429 without details; accepted requests
    are not affected.
    """

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """The response, or 429 for a rejection above the limit."""
        if response.status_code not in REFUSALS or settings.RATE_LIMITS is None or hasattr(request, "counted"):
            return response
        name = f"rate:network:{network_of(client_address(request))}:refused"
        found = _counted(name, REFUSED, time.time())
        if found is None:
            return response
        words = f"more than {found[0]} refused requests in a minute; try again in {found[1]} s"
        return refusal(request, words, found[1])


def refusal(request: HttpRequest, words: str, wait_s: int) -> HttpResponse:
    """A 429 response: a problem document for programs, text for browsers."""
    headers = {"Retry-After": str(wait_s)}
    if expects_problem(request):
        return plain_response(429, words, headers)
    return HttpResponse(words, status=429, headers=headers, content_type="text/plain; charset=utf-8")


def sentence(limit: int, wait_s: int) -> str:
    """The message for a request above the limit."""
    return f"more than {limit} requests in a minute; try again in {wait_s} s"


def excess(request: HttpRequest, *, user: Any, reading: bool, page: bool = False) -> tuple[int, int] | None:
    """The exceeded limit, and the seconds until a request is allowed again; None if it is not exceeded."""
    rates = settings.RATE_LIMITS
    if rates is None:
        return None
    request.counted = True  # type: ignore[attr-defined]
    if user is not None and user.is_authenticated:
        subject, pair = f"user:{user.pk}", rates[role_of(user) or "viewer"]
    else:
        subject, pair = f"network:{network_of(client_address(request))}", STRANGERS
    limit = pair[0 if reading else 1] * (PAGES if page else 1)
    kind = "pages" if page else "read" if reading else "write"
    return _counted(f"rate:{subject}:{kind}", limit, time.time())


def _counted(name: str, limit: int, now: float) -> tuple[int, int] | None:
    global _away_until, _is_counting
    if not settings.REDIS_URL or time.monotonic() < _away_until:
        return None
    window, into = divmod(now, WINDOW_S)
    try:
        with shared().pipeline(transaction=False) as pipe:
            pipe.get(f"{name}:{int(window) - 1}")
            pipe.incr(f"{name}:{int(window)}")
            pipe.expire(f"{name}:{int(window)}", 2 * WINDOW_S)
            before, count, _ = pipe.execute()
    except redis.exceptions.RedisError as error:
        _away_until = time.monotonic() + REST_S
        if _is_counting:
            logger.warning("requests are not limited while Redis does not answer", why=str(error))
        _is_counting = False
        return None
    if not _is_counting:
        logger.info("requests are limited again")
    _is_counting = True
    return over(int(before or 0), int(count), into, limit)


def over(before: int, count: int, into_s: float, limit: int) -> tuple[int, int] | None:
    """Of so many requests in the window before and in this one, ``into_s`` old: the limit and the seconds to wait."""
    if before * (1 - into_s / WINDOW_S) + count <= limit:
        return None
    if count < limit:  # until enough of the window before is past for one request more
        return limit, max(1, int(WINDOW_S * (1 - (limit - count - 1) / before) - into_s) + 1)
    # until this window is the one before, and enough of it is past
    return limit, max(1, int(WINDOW_S - into_s + WINDOW_S * (1 - (limit - 1) / count)) + 1)
