"""Identity and heartbeat of this process, so that the leases of a dead process are released early.

Decision and ingest processes send a heartbeat twice per second. If a lease's holder sends none, it is released before
it expires. Fencing tokens and conditional cursors make that safe if the holder was only slow.
"""

import os
import socket
import uuid
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from threading import Event, Thread
from typing import Final

import psutil
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


def where(pid: int | None = None) -> str:
    """``host:pid~machine~start`` of this process, or of another one that runs here.

    Containers can have the same host name and process numbers, and numbers are reused: ``machine`` is this boot
    and this process namespace, ``start`` the time when the process began. ``shown`` is the readable part.
    """
    pid = os.getpid() if pid is None else pid
    return f"{socket.gethostname()}:{pid}~{_machine()}~{_start(pid) or ''}"


def shown(place: str) -> str:
    """``host:pid`` of a ``where``."""
    return place.partition("~")[0]


def begin(client: Client, key: Callable[[str], str] = names.process) -> None:
    """Make leases name this process; the caller continues with ``say``, which writes heartbeats to ``key``.

    Dead processes of this machine are evicted immediately: after a restart no job waits for them.
    """
    global _me, _key
    _key = key
    _evict_dead(client)
    name = token_hex(8)
    _say(client, name)
    _me = name


def end() -> None:
    """Make leases no longer name this process."""
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


def has_others(client: Client) -> bool:
    """Whether another process of the kind of this one sends heartbeats."""
    return any(key.decode() != _key(_me) for key in client.scan_iter(match=_key("*"), count=1000))


def is_held(client: Client, lease: str) -> bool:
    """Whether another process could not take this lease of a writer now: the condition of ``seize.lua``."""
    held = (client.execute_command("GET", lease) or b"").decode()
    holder, colon, _ = held.partition(":")
    return bool(held) and not (holder.isalnum() and colon and not client.exists(names.writer(holder)))


def _evict_dead(client: Client) -> None:
    for key in client.scan_iter(match=_key("*"), count=1000):
        place = (client.execute_command("GET", key) or b"").decode()
        if place == where() or is_gone_from_here(place):
            client.delete(key)


def is_gone_from_here(place: str) -> bool:
    """Whether ``place``, a ``where`` of some process, is on this machine, and that process has ended."""
    process, _, identity = place.partition("~")
    machine, _, start = identity.partition("~")
    host, _, pid = process.rpartition(":")
    is_here = host == socket.gethostname() and machine == _machine() and pid.isdecimal()
    return is_here and _start(int(pid)) != start


@cache
def _machine() -> str:
    """The boot id of the machine and, if available, the PID namespace of this process."""
    try:
        boot_identity = Path("/proc/sys/kernel/random/boot_id").read_text() + str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        boot_identity = f"{uuid.getnode()} {psutil.boot_time():.0f}"
    return sha256(boot_identity.encode()).hexdigest()[:8]


def _start(pid: int) -> str | None:
    """When the process began, in clock ticks since boot (empty if unknown); None: there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        pass
    try:
        return f"{psutil.Process(pid).create_time():.2f}"
    except (psutil.Error, OverflowError):
        return None
