"""Workers without time: someone finishes, the gate says who may continue. And what it should say, in a few lines."""

from typing import Any

from controlplane.core.barriers import Arrival, AsyncBarrier, Members, Passage
from tests.policies.cluster import resolve


class Crowd:
    """Workers under a gate, each at an iteration of its own."""

    def __init__(self, name: str, workers: int, *, seed: int = 7, **parameters: Any) -> None:
        self.gate: AsyncBarrier = resolve("barrier", name, **parameters)
        self.done = dict.fromkeys(range(workers), -1)
        self.watermark = dict.fromkeys(range(workers), -1)
        self.at_ms = 0
        self.seed = seed
        self.state: Any = None
        self.begin()

    def begin(self) -> Passage:
        """A generation of those who are there."""
        members = Members(done=dict(self.done), watermark=dict(self.watermark), seed=self.seed, at_ms=self.at_ms)
        self.state, passage = self.gate.start(members, self.state)
        return self._take(passage)

    def finish(self, rank: int, *, busy_s: float = 1.0) -> Passage:
        """A worker whose watermark allows its next iteration finishes it."""
        assert rank in self.going, f"w{rank} may not start its next iteration"
        self.at_ms += 10
        self.done[rank] += 1
        arrival = Arrival(
            rank=rank, done=self.done[rank], watermark=self.watermark[rank], busy_s=busy_s, at_ms=self.at_ms
        )
        self.state, passage = self.gate.arrive(arrival, self.state)
        return self._take(passage)

    def recheck(self) -> Passage:
        """Time passes until the gate wants to look again."""
        due_ms = self.gate.recheck_at_ms(self.state)
        assert due_ms is not None
        self.at_ms = max(self.at_ms, due_ms)
        self.state, passage = self.gate.recheck(self.at_ms, self.state)
        return self._take(passage)

    @property
    def going(self) -> list[int]:
        """Whose watermark allows its next iteration."""
        return [rank for rank in sorted(self.done) if self.watermark[rank] > self.done[rank]]

    def _take(self, passage: Passage) -> Passage:
        for rank, release in passage.releases.items():
            assert release.reason
            assert release.watermark > self.done[rank]
            self.watermark[rank] = max(self.watermark[rank], release.watermark)
        for rank, wait in passage.waits.items():
            assert self.watermark[rank] <= self.done[rank]
            assert wait.waits_for
        return passage


def may_go(done: dict[int, int], staleness: int | None) -> list[int]:
    """Who may start its next iteration if no one may be more than ``staleness`` ahead of anybody (None: no limit)."""
    slowest = min(done.values())
    return [rank for rank in sorted(done) if staleness is None or done[rank] - slowest <= staleness]
