"""What the tests of the guard serve: an application that answers, waits, reads or hangs, under short deadlines."""

import asyncio
import resource
from typing import Any

from controlplane.gateway import guarded
from controlplane.gateway.guard import Limits


class Http(guarded.Http):
    """With little patience."""

    limits = Limits(
        head_s=1.0,
        handshake_s=1.0,
        body_s=1.0,
        bytes_per_s=1e6,
        stalled_s=1.0,
        idle_s=1.0,
        head_bytes=4096,
        silent=20,
        bodies=8,
        requests=4,
        sweep_s=0.05,
    )


async def application(scope: Any, receive: Any, send: Any) -> None:
    """``/hang`` never answers, ``/`` reads the body and says how many descriptors the process may have."""
    if scope["type"] == "websocket":
        await receive()
        if scope["path"] == "/hang":
            await asyncio.Event().wait()
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect":
            pass
        return
    while (message := await receive()).get("more_body"):
        pass
    if message["type"] == "http.disconnect":
        return
    if scope["path"] == "/hang":
        while (await receive())["type"] != "http.disconnect":
            pass
        return
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    body = b"x" * 50_000_000 if scope["path"] == "/large" else str(descriptors).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
