"""The engines of a process: made by one thread at a time."""

from threading import Thread

import msgspec
import pytest

from controlplane.runtime.engines import AnyEngine, Engines
from tests.runtime.support import CountingEngines, State, facts

A_MOMENT_S = 0.2
"""Enough for a thread that need not wait; where it waits, it does so for ever."""


class _AskedAgain(CountingEngines):
    """While it makes an engine, another thread asks for one too."""

    def __init__(self) -> None:
        super().__init__()
        self.engines = Engines(self, facts)
        self.at_once = 0
        self.most_at_once = 0
        self.other: Thread | None = None

    def new(self, job: int) -> AnyEngine:
        return self._make(super().new(job))

    def restore(self, snapshot: bytes) -> AnyEngine:
        return self._make(super().restore(snapshot))

    def _make(self, engine: AnyEngine) -> AnyEngine:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        if self.other is None:
            self.other = Thread(target=self.engines.restored, args=(8, msgspec.msgpack.encode(State()), 0))
            self.other.start()
            self.other.join(A_MOMENT_S)
        self.at_once -= 1
        return engine


@pytest.mark.parametrize("snapshot", [None, msgspec.msgpack.encode(State())])
def test_a_process_makes_one_engine_at_a_time(snapshot: bytes | None) -> None:
    """Threads that decode a type at once, which neither has decoded before, kill the process."""
    kind = _AskedAgain()
    kind.engines.restored(7, snapshot, 0)
    assert kind.other is not None
    kind.other.join()
    assert (kind.made, kind.most_at_once) == (2, 1)
