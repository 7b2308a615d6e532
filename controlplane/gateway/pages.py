"""The sockets of browsers, ``/ws/pages``. They carry numbered ticks; pages fetch figures and tables by HTTP."""

from typing import Any

import msgspec
from channels.db import database_sync_to_async

from controlplane.gateway import close_codes
from controlplane.gateway.handshake import offers_our_protocol
from controlplane.gateway.hub import get_hub
from controlplane.gateway.page_sessions import admitted, user_of
from controlplane.gateway.rate_limiter import PAGE_PER_S
from controlplane.gateway.sockets import Message, Receive, Send, Socket
from controlplane.protocol.messages import Refresh

MAX_TEXT = 1_024
MOST_PAGES = 100
"""Most open pages of one user in one web process: each receives every tick."""

_decoder = msgspec.json.Decoder(Refresh)


async def page_socket(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Serve one page until it closes. Channels has checked the origin and loaded the session."""
    socket = await Socket.accept(scope, receive, send, per_s=PAGE_PER_S)
    if not offers_our_protocol(scope):
        await socket.send_close(close_codes.MALFORMED)
        return
    session = scope["session"].session_key or ""
    found = await database_sync_to_async(admitted)([session])
    user = await database_sync_to_async(user_of)(session)
    if session not in found or user is None:
        await socket.send_close(close_codes.UNAUTHORISED)
        return
    hub = await get_hub()
    broadcaster = hub.broadcaster
    if hub.pages_of[user] >= MOST_PAGES:
        await socket.send_close(close_codes.FLOOD)
        return

    async def take(message: Message) -> None:
        text = message.get("text") or ""
        if len(text) > MAX_TEXT:
            socket.close(close_codes.OVERSIZED)
            return
        try:
            _decoder.decode(text)
        except msgspec.DecodeError:
            socket.close(close_codes.MALFORMED)
            return
        await broadcaster.refresh(socket)

    hub.pages_of[user] += 1
    broadcaster.enter(socket, session, found[session])
    try:
        await socket.run(take)
    finally:
        broadcaster.leave(socket)
        hub.pages_of[user] -= 1
        if not hub.pages_of[user]:
            del hub.pages_of[user]
