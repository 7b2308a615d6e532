"""Bodies that are made while they are sent."""

from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import Final

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from rest_framework.request import Request

LINES_AT_ONCE: Final = 2_000


def streamed(request: Request, lines: Iterator[str]) -> Iterator[str] | AsyncIterator[str]:
    """The lines, as the server behind the request takes them.

    Under ASGI Django would read all of a plain iterator into memory before it sent any of it.
    """
    parts = iter(lambda: "".join(islice(lines, LINES_AT_ONCE)), "")
    return _in_a_thread(parts) if isinstance(request._request, ASGIRequest) else parts


async def _in_a_thread(parts: Iterator[str]) -> AsyncIterator[str]:
    """Each part is made in the request's own thread, in which its database connection lives."""
    while part := await sync_to_async(lambda: next(parts, ""))():
        yield part
