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
                for keys in await self._answer(asked, list(asked)):
                    await self._answer(asked, keys)
        finally:
            self._reading = None
            for waiting in asked.values():
                waiting.cancel()

    async def _answer(self, asked: Mapping[Key, "asyncio.Future[Value]"], keys: list[Key]) -> list[list[Key]]:
        """Read ``keys`` and answer who asked. If that fails for several keys, returns each of them, to be read alone: a
        client with a key that cannot be read must not harm the others.
        """
        try:
            found = await database_sync_to_async(self._read)(keys)
        except Exception as error:
            if len(keys) > 1:
                return [[key] for key in keys]
            asked[keys[0]].set_exception(error)
            asked[keys[0]].exception()  # whoever asked may be gone
            return []
        for key in keys:
            asked[key].set_result(found[key])
        return []
