"""Refuses bodies that are too large before they are received: Django would first write all of them to disk."""

import json
import re
from typing import Any

from asgiref.sync import sync_to_async
from asgiref.typing import ASGIReceiveCallable, ASGISendCallable

from controlplane.api import problems
from controlplane.api.models_store import MAX_MODEL_BYTES, upload_allowed

MAX_BYTES = 2 * 1024 * 1024
"""Of every request but a model's upload."""

MODEL_PATH = re.compile(r"/api/v1/jobs/(\d{1,18})/model")


class BodyTooLarge(Exception):
    """More was sent than is accepted."""


class BodyLimit:
    """An ASGI application around another one."""

    def __init__(self, application: Any) -> None:
        self.application = application

    async def __call__(self, scope: Any, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Pass the request on, if it is small enough or a worker stores its model."""
        limit = await _limit(scope)
        if _announced(scope) > limit:
            await _refuse(send, limit)
            return
        try:
            await self.application(scope, _counted(receive, limit), send)
        except BodyTooLarge:
            await _refuse(send, limit)


async def _limit(scope: Any) -> int:
    path = MODEL_PATH.fullmatch(scope["path"])
    if path is None or scope["method"] != "PUT":
        return MAX_BYTES
    allowed = await sync_to_async(upload_allowed)(int(path[1]), _header(scope, b"authorization"))
    return MAX_MODEL_BYTES if allowed else MAX_BYTES


def _announced(scope: Any) -> int:
    text = _header(scope, b"content-length")
    return int(text) if text.isdecimal() else 0


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
    body = json.dumps(problems.document(413, f"the body is larger than {limit} bytes, which is the most accepted here"))
    headers = [(b"content-type", problems.CONTENT_TYPE.encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": body.encode()})
