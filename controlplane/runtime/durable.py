"""Durable numbers in Redis: the number up to which a process does not have to resend its messages.

The numbers are stored in the database, in the same transaction as the rows (``telemetry.numbers``). Ingest writes them
here after the commit, and all of them again when it first sees a job. So they are never ahead of the database, and a
Redis that lost its data gets them again. Gateways receive them on a channel and inform the senders.
"""

from collections.abc import Mapping

import msgspec

from controlplane.runtime import names
from controlplane.runtime.redis import AsyncClient, Client

_encoder = msgspec.msgpack.Encoder()
numbers_decoder: msgspec.msgpack.Decoder[dict[str, int]] = msgspec.msgpack.Decoder(dict[str, int])
"""Decodes messages of the channel."""


def publish_numbers(client: Client, job: int, numbers: Mapping[str, int]) -> None:
    """Publish, by process instance, the message number up to which everything is in the database."""
    if numbers:
        client.hset(names.durable(job), items=[part for item in numbers.items() for part in item])
        client.publish(names.durable_moved(job), _encoder.encode(numbers))


async def durable_number(client: AsyncClient, job: int, instance: str) -> int:
    """The durable number of one process instance; 0 if unknown."""
    return int(await client.hget(names.durable(job), instance) or 0)
