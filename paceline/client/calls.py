"""Requests and the decoding of replies: the smallest operations, of which all others consist."""

from collections.abc import Generator, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from paceline.client.steps import Operation, Reply, Send, Step
from paceline.client.types import Page
from paceline.errors import Unreachable

T = TypeVar("T")

PAGE_SIZE = 500
"""The maximum page size of the API."""

Value = str | int | float | bool | None
Query = Mapping[str, Value | Iterable[Value]]

Raw = Generator[Step, Reply | None, Reply]


def request(
    method: str,
    path: str,
    *,
    query: Query | None = None,
    body: object = None,
    headers: Mapping[str, str] | None = None,
) -> Raw:
    """Send a request and return the reply. A ``body`` is sent as JSON, bytes unchanged."""
    known = dict(headers or {})
    content = body if isinstance(body, bytes) else None
    if body is not None and content is None:
        content = msgspec.json.encode(body)
        known.setdefault("Content-Type", "application/json")
    reply = yield Send(method, path, _pairs(query or {}), known, content)
    assert reply is not None
    return reply


def get(kind: type[T], path: str, /, **query: Value | Iterable[Value]) -> Operation[T]:
    """GET the resource and decode it as that type."""
    return read((yield from request("GET", path, query=query)), kind)


def post(kind: type[T], path: str, body: object = None) -> Operation[T]:
    """POST and decode the reply as that type."""
    return read((yield from request("POST", path, body=body)), kind)


def pages(kind: type[T], path: str, limit: int | None, /, **query: Value | Iterable[Value]) -> Operation[list[T]]:
    """All entries of a list, or the first ``limit`` of them, read page by page."""
    found: list[T] = []
    number = 1
    size = PAGE_SIZE if limit is None else max(1, min(limit, PAGE_SIZE))
    while limit is None or len(found) < limit:
        page = yield from get(Page[kind], path, **query, page=number, page_size=size)  # type: ignore[valid-type]
        found += page.results
        if page.next is None:
            break
        number += 1
    return found if limit is None else found[:limit]


def read(reply: Reply, kind: type[T]) -> T:
    """Decode the reply as that type.

    Raises:
        Unreachable: if it cannot be decoded: the server is not a control plane, or has another release.
    """
    try:
        return msgspec.json.decode(reply.content, type=kind)
    except msgspec.MsgspecError as error:
        raise Unreachable(f"what answers there is no control plane that this release understands: {error}") from None


def _pairs(query: Query) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for name, given in query.items():
        values: Iterable[Any] = given if isinstance(given, Iterable) and not isinstance(given, str) else [given]
        pairs += [(name, _text(value)) for value in values if value is not None]
    return pairs


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
