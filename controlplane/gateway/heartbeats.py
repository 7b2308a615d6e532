"""Batches heartbeats for Redis: keeps the newest of each process, and writes them every ``hub.FLUSH_S``."""

import time
from collections import defaultdict

from controlplane.protocol.measurements import OF_MACHINES, known_of
from controlplane.protocol.messages import AgentHeartbeat, Heartbeat, IterationReport
from controlplane.runtime import presence
from controlplane.runtime.presence import Load, ReceivedHeartbeat
from controlplane.runtime.wire import Caller


class Heartbeats:
    """Collects heartbeats; any other message of a process counts as one."""

    def __init__(self) -> None:
        self._latest: defaultdict[str, dict[str, tuple[float, object]]] = defaultdict(dict)

    def note(self, hash_name: str, name: str, message: object) -> None:
        """Record that ``name`` sent a message now."""
        self._latest[hash_name][name] = (time.monotonic(), message)

    async def flush(self, caller: Caller) -> None:
        """Write the collected heartbeats."""
        latest, self._latest = self._latest, defaultdict(dict)
        now = time.monotonic()
        for hash_name, heartbeats in latest.items():
            await presence.record_heartbeats(
                caller,
                hash_name,
                [
                    ReceivedHeartbeat(name=name, age_ms=int((now - at) * 1000), load=load_of(message))
                    for name, (at, message) in heartbeats.items()
                ],
            )


def load_of(message: object) -> Load:
    """The machine load in a message, if it reports one."""
    match message:
        case AgentHeartbeat():
            return known_of(message, (each.name for each in OF_MACHINES))
        case Heartbeat() | IterationReport():
            return {"cpu": message.cpu, "memory": message.memory}
    return {}
