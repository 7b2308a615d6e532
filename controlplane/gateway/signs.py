"""Signs of life on their way to Redis: the newest of each, sent together a few times a second."""

import time
from collections import defaultdict

from controlplane.runtime import presence
from controlplane.runtime.presence import Heard, Load
from controlplane.runtime.redis import AsyncClient

NO_LOAD = Load()


class Signs:
    """Collects them; a report is a sign as good as a heartbeat."""

    def __init__(self) -> None:
        self._heard: defaultdict[str, dict[str, tuple[float, Load]]] = defaultdict(dict)

    def note(self, hash_name: str, name: str, load: Load = NO_LOAD) -> None:
        """``name`` gave a sign of life now."""
        self._heard[hash_name][name] = (time.monotonic(), load)

    async def flush(self, client: AsyncClient) -> None:
        """Send what was collected."""
        heard, self._heard = self._heard, defaultdict(dict)
        now = time.monotonic()
        for hash_name, signs in heard.items():
            ages = [Heard(name=name, age_ms=int((now - at) * 1000), load=load) for name, (at, load) in signs.items()]
            await presence.heard(client, hash_name, ages)
