"""Signs of life on their way to Redis: the newest of each, sent together a few times a second."""

import time
from collections import defaultdict

from controlplane.protocol.messages import AgentHeartbeat, Heartbeat, IterationReport
from controlplane.runtime import presence
from controlplane.runtime.presence import Heard, Load
from controlplane.runtime.redis import AsyncClient


class Signs:
    """Collects them; a report is a sign as good as a heartbeat."""

    def __init__(self) -> None:
        self._heard: defaultdict[str, dict[str, tuple[float, object]]] = defaultdict(dict)

    def note(self, hash_name: str, name: str, said: object) -> None:
        """``name`` said something now."""
        self._heard[hash_name][name] = (time.monotonic(), said)

    async def flush(self, client: AsyncClient) -> None:
        """Send what was collected."""
        heard, self._heard = self._heard, defaultdict(dict)
        now = time.monotonic()
        for hash_name, signs in heard.items():
            await presence.heard(
                client,
                hash_name,
                [
                    Heard(name=name, age_ms=int((now - at) * 1000), load=load_of(said))
                    for name, (at, said) in signs.items()
                ],
            )


def load_of(said: object) -> Load:
    """What a message says of the machine."""
    match said:
        case Heartbeat(cpu=cpu, memory=memory) | IterationReport(cpu=cpu, memory=memory):
            return Load(cpu=cpu, memory=memory)
        case AgentHeartbeat(cpu=cpu, memory=memory, bytes_sent=sent, bytes_received=received):
            return Load(cpu=cpu, memory=memory, bytes_sent=sent, bytes_received=received)
    return Load()
