"""The baseline of the full path: a websocket that echoes each message."""

from collections.abc import Awaitable, Callable
from typing import Any


async def application(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    """Serve one connection."""
    await receive()
    await send({"type": "websocket.accept", "subprotocol": scope["subprotocols"][0]})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "bytes": message["bytes"]})
