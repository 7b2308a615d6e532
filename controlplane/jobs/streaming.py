"""Response bodies that are generated while they are sent."""

from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import Final, TypeVar

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest

LINES_AT_ONCE: Final = 2_000

Part = TypeVar("Part", str, bytes)


def streamed(request: HttpRequest, parts: Iterator[Part]) -> Iterator[Part] | AsyncIterator[Part]:
    """The parts as an iterator of the kind that the server of this request needs.

    Under ASGI Django would read all of a plain iterator into memory before it sent any of it.
    """
    return _in_a_thread(parts) if isinstance(request, ASGIRequest) else parts


def streamed_lines(request: HttpRequest, lines: Iterator[str]) -> Iterator[str] | AsyncIterator[str]:
    """The same for lines, many of them per part."""
    return streamed(request, iter(lambda: "".join(islice(lines, LINES_AT_ONCE)), ""))


async def _in_a_thread(parts: Iterator[Part]) -> AsyncIterator[Part]:
    """Make each part in the request's own thread, which owns the database connection."""
    while (part := await sync_to_async(lambda: next(parts, None))()) is not None:
        yield part
