"""A job's log: a stream of events. Appending to it queues the job for decisions.

An append is never retried here: after a lost reply the sender, which knows the message number, resends.
"""

import asyncio
from secrets import token_bytes
from typing import Any, Final

import msgspec
from asgiref.sync import sync_to_async

from controlplane.core.events import EngineFailed, Entry, Event, JobSubmitted
from controlplane.protocol.base import UNREADABLE
from controlplane.protocol.cleaning import clean_text
from controlplane.protocol.spec import JobSpec
from controlplane.runtime import names, queue, redis
from controlplane.runtime.scripts import APPEND, START
from controlplane.runtime.wire import Caller

NO_LOG: Final = -1
OVER: Final = -2
ANY_RUN: Final = ""
SALT_BYTES: Final = 16

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event)


class LogClosed(RuntimeError):
    """The job is over, or has no log: nothing was appended."""


class LogMissing(LogClosed):
    """The job has no usable log in Redis: it was never started, ended long ago, or is not recovered yet."""


def encode_event(event: Event) -> bytes:
    """The event as encoded in the stream."""
    return _encoder.encode(event)


def decode_event(payload: bytes) -> Event:
    """The event that ``encode_event`` wrote."""
    return _decoder.decode(payload)


def read_event(stream_id: str, payload: bytes) -> Event:
    """The event of an entry of the log; an unreadable entry becomes an event that ends its job."""
    try:
        return decode_event(payload)
    except UNREADABLE as error:
        return EngineFailed(entry=stream_id, reason=clean_text(f"the entry is not an event: {error}"))


def start_log(job: int, spec: JobSpec, *, client: redis.Client | None = None, salt: bytes | None = None) -> bool:
    """Start the job's log and enqueue the job; False if it has a log already.

    ``salt``: the secret for the names of its processes' instances; random by default.
    """
    keys = [names.events(job), names.state(job), names.engine(job), names.LIVE_JOBS]
    payload = encode_event(JobSubmitted(spec=spec, salt=token_bytes(SALT_BYTES) if salt is None else salt))
    arguments = (names.QUEUED_MS, payload, job, redis.redis_run_id())
    started = bool(START.run(client or redis.shared(), keys, *arguments))
    if started:
        queue.enqueue(job)
    return started


def append_event(job: int, event: Event, *, client: redis.Client | None = None) -> str:
    """Append an event and enqueue the job; returns the entry's id. A log that is not recovered yet accepts it, too.

    Raises:
        LogClosed: if the job is over or was never started.
    """
    reply = APPEND.run(client or redis.shared(), _append_keys(job), names.QUEUED_MS, ANY_RUN, encode_event(event))
    if flipped(job, reply):
        queue.enqueue(job)
    return str(reply[1].decode())


async def aappend_event(caller: Caller, job: int, event: Event) -> None:
    """As ``append_event``, without blocking the event loop, and only to a complete log, as ``begin_append``."""
    await caller.open()
    reply = await APPEND.acall(caller, _append_keys(job), names.QUEUED_MS, caller.run_id, encode_event(event))
    if flipped(job, reply):
        await aenqueue(job)


def begin_append(
    caller: Caller, job: int, payloads: list[bytes], *, with_source: bool = False
) -> asyncio.Future[list[Any]]:
    """Send encoded events in order; the caller passes the reply to ``flipped``.

    A log that may have lost its end accepts none before it is recovered. Messages of processes may result from orders
    that were lost: the engine would refuse these as not granted, and ignore them when resent.
    """
    fixed = (names.QUEUED_MS, caller.run_id)
    return APPEND.begin(caller, _append_keys(job), *fixed, *payloads, with_source=with_source)


def flipped(job: int, reply: list[Any]) -> bool:
    """Whether an append flipped the job from idle to queued, so that it should be enqueued.

    Raises:
        LogClosed: if the job is over; ``LogMissing`` if there is no log here.
    """
    if reply[0] == NO_LOG:
        raise LogMissing(f"job {job}: has no usable log; it was never submitted, or is not recovered yet")
    if reply[0] == OVER:
        raise LogClosed(f"job {job}: is over and accepts no further events")
    return bool(reply[0])


async def aenqueue(job: int) -> None:
    """As ``queue.enqueue``, without blocking the event loop."""
    await sync_to_async(queue.enqueue, thread_sensitive=False)(job)


def read_entries(client: redis.Client, job: int, *, after: str, count: int, block_s: float) -> list[Entry]:
    """Entries after that id, oldest first; waits up to ``block_s`` for the first one (0: not at all)."""
    redis.send(client, pack_read(job, after=after, count=count, block_s=block_s))
    return receive_entries(client)


def pack_read(job: int, *, after: str, count: int, block_s: float) -> bytes:
    """The command of ``read_entries``, to be sent along with another."""
    block = ("BLOCK", redis.block_ms(block_s)) if block_s > 0 else ()
    return redis.pack("XREAD", "COUNT", count, *block, "STREAMS", names.events(job), after)


def receive_entries(client: redis.Client) -> list[Entry]:
    """The reply to such a command."""
    reply = redis.read_reply(client)
    return [_entry(stream_id, payload) for _, items in reply or () for stream_id, (_, payload) in items]


def _append_keys(job: int) -> list[str]:
    return [names.events(job), names.state(job), names.engine(job)]


def _entry(stream_id: bytes, payload: bytes) -> Entry:
    return Entry(id=stream_id.decode(), event=read_event(stream_id.decode(), payload))
