"""The one connection on which a gateway learns of everything: what counts as heard once it was lost."""

import asyncio
from contextlib import suppress

import pytest
from redis.exceptions import ConnectionError

from controlplane.gateway.cancellation import end
from controlplane.gateway.subscriptions import Subscriptions
from controlplane.runtime.redis import Client


async def test_the_next_channel_does_not_inherit_acknowledgements_of_a_lost_one(client: Client) -> None:
    lost = asyncio.Event()
    subscriptions = Subscriptions(lost.set)
    before, after = list[bytes](), list[bytes]()
    await subscriptions.open()
    listening = asyncio.create_task(subscriptions.run())
    try:
        await subscriptions.add("news", before.append)
        client.client_kill_filter(_type="pubsub")
        await lost.wait()
        with pytest.raises(ConnectionError, match="news: cannot be subscribed to"):
            await subscriptions.add("news", after.append)
        async with asyncio.timeout(30):
            while not after:
                with suppress(ConnectionError):
                    await subscriptions.add("news", after.append)
                    client.publish("news", "again")
                await asyncio.sleep(0.01)
        assert set(before) == set(after) == {b"again"}
    finally:
        await end(listening)
        subscriptions.close()
