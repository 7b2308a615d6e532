"""Bodies that are made while they are sent."""

import asyncio
from collections.abc import AsyncIterator, Iterator

from django.test import AsyncRequestFactory, RequestFactory

from controlplane.jobs.streaming import LINES_AT_ONCE, streamed, streamed_lines


def test_under_asgi_lines_are_made_as_they_are_sent() -> None:
    """At most so many at a time, however many there are."""
    made: list[int] = []

    def lines() -> Iterator[str]:
        for number in range(LINES_AT_ONCE + 2):
            made.append(number)
            yield f"{number}\n"

    async def sent() -> list[tuple[int, int]]:
        parts = streamed_lines(AsyncRequestFactory().get("/"), lines())
        assert isinstance(parts, AsyncIterator)
        return [(part.count("\n"), len(made)) async for part in parts]

    assert asyncio.run(sent()) == [(LINES_AT_ONCE, LINES_AT_ONCE), (2, LINES_AT_ONCE + 2)]


def test_under_wsgi_parts_stay_as_they_are() -> None:
    parts = iter([b"a", b"b"])
    assert streamed(RequestFactory().get("/"), parts) is parts
