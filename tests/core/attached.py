"""Tells the engine of an attached job a story: hellos of ranks, their reports, and what it answered."""

from typing import Any

from controlplane.core.commands import AnyCommand
from controlplane.core.events import LAUNCHER, ConnectionLost, JobSubmitted, LauncherEnded, TimePassed
from controlplane.core.states import JobState
from controlplane.protocol.messages import IterationReport, Quiesced, RankHello, WorkerFinished
from controlplane.protocol.spec import parse_spec
from tests.core.story import Story

BATCH = 32


class Attached(Story):
    """One attached job of two ranks, unless told otherwise."""

    def __init__(self, **changes: Any) -> None:
        super().__init__()
        document = {"name": "mine", "launch": "attached", "workers": 2, "batch_size": BATCH}
        self.spec = parse_spec(document | changes)
        self.lives: dict[int, int] = {}

    def submitted(self) -> "Attached":
        self.see(JobSubmitted(spec=self.spec))
        return self

    def running(self) -> "Attached":
        self.submitted()
        for rank in range(self.spec.workers):
            self.comes(rank)
        return self

    def instance(self, role: str, index: int) -> str:
        return f"r{index}-{self.lives.get(index, 0)}"

    def comes(self, rank: int, *, again: bool = False, **changes: Any) -> list[AnyCommand]:
        """A rank's process begins and says hello; ``again``: it is the same, after a reconnect."""
        if not again:
            self.lives[rank] = self.lives.get(rank, 0) + 1
            self.numbers[self.instance("w", rank)] = 1
        return self.say(rank, self.a_hello(rank, **changes))

    def a_hello(self, rank: int, **changes: Any) -> RankHello:
        fields: dict[str, Any] = {
            "number": 1,
            "rank": rank,
            "world": self.spec.workers,
            "batch_size": BATCH,
            "sample_count": 1000,
            "host": f"gpu-{rank}",
            "device": "cuda:0",
            "launcher": "torchrun",
            "pid": 100 + rank,
        }
        return RankHello(**(fields | changes))

    def a_report(self, rank: int, iteration: int, *, compute_s: float = 0.1, **changes: Any) -> IterationReport:
        orders = self.orders[rank]
        begin = orders.origin_position + max(0, iteration - orders.origin_iteration) * orders.global_batch
        where = {"samples": orders.shares[rank], "position": begin + sum(orders.shares[:rank])}
        return super().a_report(rank, iteration, compute_s=compute_s, **(where | changes))

    def iterate_at(self, iterations: int, *speeds: float, start: int = 0) -> None:
        """Every rank, by its speed in samples per second, reports that many iterations."""
        for iteration in range(start, start + iterations):
            for rank, speed in enumerate(speeds):
                self.report(rank, iteration, compute_s=self.orders[rank].shares[rank] / speed)

    def held(self, rank: int, iteration: int) -> list[AnyCommand]:
        orders = self.orders[rank]
        number = self.next_number(rank)
        said = Quiesced(number=number, generation=orders.generation, iteration=iteration, sequence=orders.sequence)
        return self.say(rank, said)

    def done(self, rank: int, iteration: int) -> list[AnyCommand]:
        return self.say(rank, WorkerFinished(number=self.next_number(rank), iteration=iteration))

    def drops(self, rank: int) -> list[AnyCommand]:
        """Its control socket ends."""
        return self.see(ConnectionLost(role="worker", index=rank, instance=self.instance("w", rank)))

    def passes(
        self, seconds: float, *, speaking: tuple[int, ...] = (), renewed_s_ago: float | None = None
    ) -> list[AnyCommand]:
        """Time passes; only those who are ``speaking`` give signs of life, and a launcher that renews its lease."""
        now_ms = self.now_ms + int(seconds * 1000)
        seen = {f"worker:{rank}:{self.instance('w', rank)}": now_ms for rank in speaking}
        if renewed_s_ago is not None:
            seen[LAUNCHER] = now_ms - int(renewed_s_ago * 1000)
        return self.see(TimePassed(seen=seen), after_ms=int(seconds * 1000))

    def launcher_ends(self, status: int, reason: str = "") -> list[AnyCommand]:
        return self.see(LauncherEnded(actor="launcher", exit_code=status, reason=reason))

    @property
    def job(self) -> Any:
        return self.engine._job

    @property
    def state(self) -> JobState:
        state: JobState = self.job.state
        return state
