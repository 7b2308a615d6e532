"""Which process this is, as its leases name it, and whether it lives: so that nobody waits for a holder that is dead.

A process that decides says twice a second that it lives. A lease whose process does not say so any more is free before
it expires; the fencing token makes that safe even where the process was only slow.
"""

import os
import socket
from secrets import token_hex
from typing import Final

from controlplane.runtime import names
from controlplane.runtime.redis import Client

ALIVE_MS: Final = 2_000
"""Without a word for so long, a process holds nothing any more."""

_me = ""


def me() -> str:
    """The name of this process in leases; empty where it does not say that it lives."""
    return _me


def begin(client: Client) -> None:
    """From now on leases name this process; whoever calls this goes on with ``say``.

    Processes of this machine that are gone are struck off at once: after a restart nobody waits for them at all.
    """
    global _me
    _strike_off(client)
    name = token_hex(8)
    _say(client, name)
    _me = name


def end() -> None:
    """Leases name this process no longer."""
    global _me
    _me = ""


def say(client: Client) -> None:
    """Say that this process lives."""
    if _me:
        _say(client, _me)


def _say(client: Client, name: str) -> None:
    client.set(names.process(name), f"{socket.gethostname()}:{os.getpid()}", px=ALIVE_MS)


def _strike_off(client: Client) -> None:
    for key in client.scan_iter(match=names.process("*"), count=1000):
        host, _, pid = (client.execute_command("GET", key) or b"").decode().rpartition(":")
        if host == socket.gethostname() and (int(pid) == os.getpid() or not _lives(int(pid))):
            client.delete(key)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
