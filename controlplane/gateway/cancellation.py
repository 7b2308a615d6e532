"""Cancels asyncio tasks, repeatedly if necessary, until they have ended."""

import asyncio
from typing import Any, Final

AGAIN_S: Final = 0.05


async def end(*tasks: asyncio.Task[Any]) -> list[Any]:
    """Cancel tasks and wait for them; returns the result or exception of each.

    Before Python 3.12 ``asyncio.wait_for`` loses a cancellation that comes just as its wait ends, and redis-py sends
    through it. So one cancellation is not always enough.
    """
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=AGAIN_S)
    return await asyncio.gather(*tasks, return_exceptions=True)
