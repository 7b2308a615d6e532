"""Limits the size of request bodies by path; larger ones are rejected before they are received.

Django would first write them to disk. The parsers use the same table, since not every server runs this.
"""

import json
import re
from typing import Any, Final

from asgiref.sync import sync_to_async
from asgiref.typing import ASGIReceiveCallable, ASGISendCallable

from controlplane.api import problems
from controlplane.api.models_store import MAX_MODEL_BYTES, upload_allowed

OPEN_BYTES: Final = 4 * 1024
"""Paths that need no authentication: joining machines, users who sign in."""

USUAL_BYTES: Final = 64 * 1024
"""The limit of every path that is not listed here."""

SPEC_BYTES: Final = 1024 * 1024
"""The limit of a job's document, which may hold the traces of its machines."""

OPEN: Final = re.compile(r"/api/v1/agents/enrol|/login/.*|/admin/login/")
SPEC: Final = re.compile(r"/api/v1/(jobs(/check)?|alerts/document)")
MODEL: Final = re.compile(r"/api/v1/jobs/(\d{1,18})/model")


class BodyTooLarge(Exception):
    """The body is larger than accepted."""


class BodyLimit:
    """An ASGI application around another one."""

    def __init__(self, application: Any) -> None:
        self.application = application

    async def __call__(self, scope: Any, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Pass the request on if it is small enough, or if a worker stores a model."""
        limit = await _limit(scope)
        if _announced(scope) > limit:
            await _refuse(send, limit)
            return
        try:
            await self.application(scope, _counted(receive, limit), send)
        except BodyTooLarge:
            await _refuse(send, limit)


def most_bytes(path: str) -> int:
    """The largest body that is accepted at this path, except for a model."""
    if OPEN.fullmatch(path):
        return OPEN_BYTES
    return SPEC_BYTES if SPEC.fullmatch(path) else USUAL_BYTES


def too_large(limit: int) -> str:
    """The response to a client that sent more."""
    return f"the body exceeds the limit of {limit} bytes"


async def _limit(scope: Any) -> int:
    path = MODEL.fullmatch(scope["path"])
    if path is None or scope["method"] != "PUT":
        return most_bytes(scope["path"])
    allowed = await sync_to_async(upload_allowed)(int(path[1]), _header(scope, b"authorization"))
    return MAX_MODEL_BYTES if allowed else USUAL_BYTES


def _announced(scope: Any) -> int:
    text = _header(scope, b"content-length")
    return int(text) if text.isdecimal() and len(text) < 20 else 0


def _header(scope: Any, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


def _counted(receive: Any, limit: int) -> Any:
    seen = 0

    async def counting() -> Any:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > limit:
            raise BodyTooLarge
        return message

    return counting


async def _refuse(send: Any, limit: int) -> None:
    body = json.dumps(problems.document(413, too_large(limit)))
    headers = [(b"content-type", problems.CONTENT_TYPE.encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": body.encode()})
