"""Batches heartbeats for Redis: keeps the newest of each process, and writes them every ``hub.FLUSH_S``."""

import asyncio
import time
from collections import defaultdict

from controlplane.runtime import presence
from controlplane.runtime.presence import NO_LOAD, Load, ReceivedHeartbeat
from controlplane.runtime.wire import Caller


class Heartbeats:
    """Collects heartbeats; any other message of a process counts as one."""

    def __init__(self) -> None:
        self._latest: defaultdict[str, dict[str, tuple[float, Load]]] = defaultdict(dict)

    def note(self, hash_name: str, name: str, load: Load = NO_LOAD) -> None:
        """Record that ``name`` is alive now."""
        self._latest[hash_name][name] = (time.monotonic(), load)

    async def flush(self, caller: Caller) -> None:
        """Write the collected heartbeats, those of all jobs at once.

        One after the other, a hundred jobs take a second on a busy machine, and heartbeats come too late.
        """
        latest, self._latest = self._latest, defaultdict(dict)
        now = time.monotonic()
        received = {
            hash_name: [
                ReceivedHeartbeat(name=name, age_ms=int((now - at) * 1000), load=load)
                for name, (at, load) in heartbeats.items()
            ]
            for hash_name, heartbeats in latest.items()
        }
        await asyncio.gather(*(presence.record_heartbeats(caller, *each) for each in received.items()))
