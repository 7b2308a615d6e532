"""The Lua scripts: each atomic step in Redis is a file in ``lua/``. They use commands of Redis 6.2 only."""

import asyncio
from hashlib import sha1
from pathlib import Path
from typing import Any

from redis.exceptions import NoScriptError

from controlplane.runtime.redis import AsyncClient, Client, Part, pack, read_reply, send
from controlplane.runtime.wire import Caller

FOLDER = Path(__file__).with_name("lua")


class Script:
    """One script. If the server does not know it, it was not run, so that sending it again is safe."""

    def __init__(self, name: str) -> None:
        self.source = (FOLDER / f"{name}.lua").read_text()
        self.sha = sha1(self.source.encode(), usedforsecurity=False).hexdigest()

    def run(self, client: Client, keys: list[str], *arguments: Any) -> Any:
        """Run the script; returns the raw reply."""
        try:
            return client.evalsha(self.sha, len(keys), *keys, *arguments)
        except NoScriptError:
            return client.eval(self.source, len(keys), *keys, *arguments)

    def run_hot(self, client: Client, keys: list[str], *arguments: Part, then: bytes = b"") -> Any:
        """As ``run``, but bypasses the client's layers; ``client`` must have a single connection.

        ``then`` is a packed command that changes nothing and is sent along; its reply must still be received.
        """
        rest = (len(keys), *keys, *arguments)
        send(client, pack("EVALSHA", self.sha, *rest) + then)
        try:
            return read_reply(client)
        except NoScriptError:
            if then:
                read_reply(client)
            send(client, pack("EVAL", self.source, *rest) + then)
            return read_reply(client)

    def begin(
        self, caller: Caller, keys: list[str], *arguments: Part, with_source: bool = False
    ) -> asyncio.Future[Any]:
        """Send the script; the future has the reply. On ``NoScriptError`` the caller retries ``with_source``."""
        head = ("EVAL", self.source) if with_source else ("EVALSHA", self.sha)
        return caller.begin(*head, len(keys), *keys, *arguments)

    async def acall(self, caller: Caller, keys: list[str], *arguments: Part) -> Any:
        """Run the script; returns the raw reply."""
        try:
            return await caller.call("EVALSHA", self.sha, len(keys), *keys, *arguments)
        except NoScriptError:
            return await caller.call("EVAL", self.source, len(keys), *keys, *arguments)

    async def arun(self, client: AsyncClient, keys: list[str], *arguments: Any) -> Any:
        """Run the script; returns the raw reply."""
        try:
            return await client.evalsha(self.sha, len(keys), *keys, *arguments)
        except NoScriptError:
            return await client.eval(self.source, len(keys), *keys, *arguments)


START = Script("start")
APPEND = Script("append")
TAKE = Script("take")
RENEW = Script("renew")
SEIZE = Script("seize")
RECOVER = Script("recover")
REST = Script("rest")
BURY = Script("bury")
COMMIT = Script("commit")
TICK = Script("tick")
IDLE = Script("idle")
RESCUE = Script("rescue")
RETIRE = Script("retire")
RECORD_HEARTBEATS = Script("record_heartbeats")
DISCONNECT = Script("disconnect")
FORGET = Script("forget")
READY = Script("ready")
UNRECOVERED = Script("unrecovered")
AGENT_ORDERS = Script("agent_orders")
APPEND_LINES = Script("append_lines")
FORGET_LINES = Script("forget_lines")
