"""The sockets of browsers: ``/ws/pages``. They carry numbered ticks; figures and tables are fetched."""

from typing import Any

import msgspec
from channels.db import database_sync_to_async

from controlplane.gateway import closing
from controlplane.gateway.handshake import offers_our_protocol
from controlplane.gateway.hub import get_hub
from controlplane.gateway.sockets import Message, Receive, Send, Socket
from controlplane.gateway.tempo import PAGE_PER_S
from controlplane.gateway.visitors import admitted
from controlplane.protocol.messages import Refresh

MAX_TEXT = 1_024

_decoder = msgspec.json.Decoder(Refresh)


async def page_socket(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Serve one page to its end. Channels has checked the origin and found the session."""
    socket = await Socket.accept(scope, receive, send, per_s=PAGE_PER_S)
    if not offers_our_protocol(scope):
        await socket.say_goodbye(closing.MALFORMED)
        return
    session = scope["session"].session_key or ""
    if not await database_sync_to_async(admitted)([session]):
        await socket.say_goodbye(closing.UNAUTHORISED)
        return
    audience = (await get_hub()).audience

    async def take(message: Message) -> None:
        text = message.get("text") or ""
        if len(text) > MAX_TEXT:
            socket.close(closing.OVERSIZED)
            return
        try:
            _decoder.decode(text)
        except msgspec.DecodeError:
            socket.close(closing.MALFORMED)
            return
        audience.refresh(socket)

    audience.enter(socket, session)
    try:
        await socket.run(take)
    finally:
        audience.leave(socket)
