"""Batches heartbeats for Redis: the newest of each process, flushed a few times per second."""

import time
from collections import defaultdict

from controlplane.protocol.measurements import OF_MACHINES, known_of
from controlplane.protocol.messages import AgentHeartbeat, Heartbeat, IterationReport
from controlplane.runtime import presence
from controlplane.runtime.presence import Heard, Load
from controlplane.runtime.redis import AsyncClient


class Heartbeats:
    """Collects heartbeats; any other message of a process counts as one."""

    def __init__(self) -> None:
        self._heard: defaultdict[str, dict[str, tuple[float, object]]] = defaultdict(dict)

    def note(self, hash_name: str, name: str, said: object) -> None:
        """``name`` sent a message now."""
        self._heard[hash_name][name] = (time.monotonic(), said)

    async def flush(self, client: AsyncClient) -> None:
        """Write the collected heartbeats."""
        heard, self._heard = self._heard, defaultdict(dict)
        now = time.monotonic()
        for hash_name, heartbeats in heard.items():
            await presence.heard(
                client,
                hash_name,
                [
                    Heard(name=name, age_ms=int((now - at) * 1000), load=load_of(said))
                    for name, (at, said) in heartbeats.items()
                ],
            )


def load_of(said: object) -> Load:
    """The load that a message reports, if any."""
    match said:
        case AgentHeartbeat():
            return known_of(said, (each.name for each in OF_MACHINES))
        case Heartbeat() | IterationReport():
            return {"cpu": said.cpu, "memory": said.memory}
    return {}
