"""Reads from the database for many clients at once.

Django opens a connection to the database for each call from an event loop. After an outage of web all processes connect
at the same time, and these connections cost more than their handshakes.
"""

import asyncio
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Generic, TypeVar

from channels.db import database_sync_to_async

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Lookup(Generic[Key, Value]):
    """Calls ``read`` in a thread, once for all keys that were asked for during the call before. For one event loop.

    ``read`` returns a value for each of the keys.
    """

    def __init__(self, read: Callable[[Collection[Key]], Mapping[Key, Value]]) -> None:
        self._read = read
        self._asked: dict[Key, asyncio.Future[Value]] = {}
        self._reading: asyncio.Task[None] | None = None

    async def get(self, key: Key) -> Value:
        """The value of ``key``, read after this call; raises what ``read`` raises for it."""
        found = self._asked.get(key)
        if found is None:
            found = self._asked[key] = asyncio.get_running_loop().create_future()
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_all())
        return await asyncio.shield(found)

    async def _read_all(self) -> None:
        asked: dict[Key, asyncio.Future[Value]] = {}
        try:
            while self._asked:
                asked, self._asked = self._asked, {}
                await self._answer(asked)
        finally:
            self._reading = None
            for waiting in asked.values():
                waiting.cancel()

    async def _answer(self, asked: Mapping[Key, "asyncio.Future[Value]"]) -> None:
        """Read these keys. If that fails, read each of them alone: one that cannot be read must not harm the others."""
        try:
            found = await database_sync_to_async(self._read)(list(asked))
        except Exception as error:
            for key, waiting in asked.items():
                if len(asked) > 1:
                    await self._answer({key: waiting})
                else:
                    waiting.set_exception(error)
                    waiting.exception()  # its client may have gone: then nobody else retrieves the error
        else:
            for key, waiting in asked.items():
                waiting.set_result(found[key])
