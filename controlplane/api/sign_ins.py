"""Limits concurrent sign-ins: password hashing takes a second of a core, and any client can request it."""

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from controlplane.api import problems

MOST: Final = 2
"""Maximum at one time, so that signed-in users are not affected."""

RETRY_S: Final = 2

PATHS: Final = frozenset({"/login/"})

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class SignIns:
    """An ASGI application around another one. Bodies are read before they count: a slow client occupies no slot."""

    def __init__(self, application: Any) -> None:
        self.application = application
        self._now = 0

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Pass the request on, unless too many sign-ins are in progress."""
        if scope["method"] != "POST" or scope["path"] not in PATHS:
            await self.application(scope, receive, send)
            return
        body = await _whole(receive)
        if body is None:
            return
        if self._now >= MOST:
            await _refuse(send)
            return
        self._now += 1
        try:
            await self.application(scope, _replayed(body, receive), send)
        finally:
            self._now -= 1


async def _whole(receive: Receive) -> bytes | None:
    """The body, which is small; None if the client has disconnected."""
    body = b""
    while (message := await receive())["type"] == "http.request":
        body += bytes(message.get("body", b""))
        if not message.get("more_body"):
            return body
    return None


def _replayed(body: bytes, receive: Receive) -> Receive:
    is_replayed = False

    async def receive_again() -> Message:
        nonlocal is_replayed
        if is_replayed:
            return await receive()
        is_replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


async def _refuse(send: Send) -> None:
    body = json.dumps(problems.document(503, f"too many concurrent sign-ins; try again in {RETRY_S} s")).encode()
    headers = [
        (b"content-type", problems.CONTENT_TYPE.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"retry-after", str(RETRY_S).encode()),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})
