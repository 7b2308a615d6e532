"""Identity and heartbeat of this process, so that the leases of a dead process are released early.

A process that decides or ingests sends a heartbeat twice per second. A lease whose holder sends none is released before
it expires. Fencing tokens and conditional cursors make that safe for a holder that was only slow.
"""

import os
import socket
from collections.abc import Callable
from secrets import token_hex
from threading import Event, Thread
from typing import Final

import structlog
from redis.exceptions import RedisError

from controlplane.runtime import names
from controlplane.runtime.redis import Client, shared

SAY_S: Final = 0.5
ALIVE_MS: Final = 2_000
"""Without a heartbeat for this long, a process loses its leases."""

_me = ""
_key: Callable[[str], str] = names.process

logger = structlog.get_logger(__name__)


def me() -> str:
    """The name of this process in leases; empty if it sends no heartbeats."""
    return _me


def where() -> str:
    """``host:pid`` of this process."""
    return f"{socket.gethostname()}:{os.getpid()}"


def begin(client: Client, key: Callable[[str], str] = names.process) -> None:
    """Leases name this process from now on; the caller continues with ``say``, which writes to ``key``.

    Dead processes of this machine are evicted immediately: after a restart no job waits for them.
    """
    global _me, _key
    _key = key
    _evict_dead(client)
    name = token_hex(8)
    _say(client, name)
    _me = name


def end() -> None:
    """Leases no longer name this process."""
    global _me
    _me = ""


def say(client: Client) -> None:
    """Write this process's heartbeat."""
    if _me:
        _say(client, _me)


def start_heartbeat(stopping: Event) -> Thread:
    """Send heartbeats from a separate thread until ``stopping`` is set."""
    thread = Thread(target=_heartbeat_until, args=(stopping,), name="alive", daemon=True)
    thread.start()
    return thread


def _heartbeat_until(stopping: Event) -> None:
    while not stopping.wait(SAY_S):
        try:
            say(shared())
        except RedisError as error:
            logger.warning("redis out of reach", why=str(error))


def _say(client: Client, name: str) -> None:
    client.set(_key(name), where(), px=ALIVE_MS)


def _evict_dead(client: Client) -> None:
    for key in client.scan_iter(match=_key("*"), count=1000):
        place = (client.execute_command("GET", key) or b"").decode()
        if place == where() or is_gone_from_here(place):
            client.delete(key)


def is_gone_from_here(place: str) -> bool:
    """Whether ``place``, a ``where`` of some process, is this machine, and no such process runs on it."""
    host, _, pid = place.rpartition(":")
    return host == socket.gethostname() and pid.isdecimal() and not _lives(int(pid))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
