"""Why a worker may be slow: its machine's CPU and memory readings, compared with its own past and with the others."""

import math
import statistics
from collections.abc import Sequence

from controlplane.protocol.base import Value

RISE, ABOVE_OTHERS = 0.15, 0.25
"""How much higher than usual, or than the others' median, a reading must be to be the cause."""

QUICK, SLOW = 0.3, 0.02


class Readings(Value, frozen=True, kw_only=True, array_like=True):
    """Of the machines of ``ranks``, in that order: what is read of them now and what usually is, smoothed."""

    ranks: list[int] = []
    cpu: list[float] = []
    memory: list[float] = []
    usual_cpu: list[float] = []
    usual_memory: list[float] = []

    def for_ranks(self, ranks: list[int]) -> "Readings":
        """Those of these machines; nothing is known of one that is not among them."""
        if ranks == self.ranks:
            return self
        place = {rank: column for column, rank in enumerate(self.ranks)}

        def pick(of: list[float]) -> list[float]:
            return [of[place[rank]] if rank in place else math.nan for rank in ranks]

        return Readings(
            ranks=ranks,
            cpu=pick(self.cpu),
            memory=pick(self.memory),
            usual_cpu=pick(self.usual_cpu),
            usual_memory=pick(self.usual_memory),
        )

    def of(self, rank: int) -> tuple[dict[str, float], dict[str, float]] | None:
        """What is read of one machine, and what usually is: cpu and memory of each."""
        if rank not in self.ranks:
            return None
        at = self.ranks.index(rank)
        now = {"cpu": self.cpu[at], "memory": self.memory[at]}
        return now, {"cpu": self.usual_cpu[at], "memory": self.usual_memory[at]}

    def of_others(self, rank: int) -> dict[str, list[float]]:
        """What is read of all machines but one."""
        read = {"cpu": self.cpu, "memory": self.memory}
        return {
            name: [value for other, value in zip(self.ranks, values, strict=True) if other != rank]
            for name, values in read.items()
        }


def read(known: Readings, ranks: list[int], *, cpu: list[float], memory: list[float]) -> Readings:
    """The readings with one more iteration, of the machines of ``ranks``; of a new one this is what is usual."""
    all_ranks = ranks if known.ranks == ranks else sorted({*known.ranks, *ranks})
    before = known.for_ranks(all_ranks)
    now = Readings(ranks=ranks, cpu=cpu, memory=memory, usual_cpu=cpu, usual_memory=memory).for_ranks(all_ranks)
    return Readings(
        ranks=all_ranks,
        cpu=_smoothed(before.cpu, now.cpu, QUICK),
        memory=_smoothed(before.memory, now.memory, QUICK),
        usual_cpu=_smoothed(before.usual_cpu, now.usual_cpu, SLOW),
        usual_memory=_smoothed(before.usual_memory, now.usual_memory, SLOW),
    )


def cause_of(kind: str, rank: int, readings: Readings) -> tuple[str, str]:
    """cpu, memory, network or unknown, and the clause that says so."""
    if kind == "communication":
        return "network", "its link, not its compute"
    own, others = readings.of(rank), readings.of_others(rank)
    if own is None or not others["cpu"]:
        return "unknown", "nothing is known of its machine's load"
    now, usual = own
    grown = {name: _grown(now[name], usual[name], others[name]) for name in now}
    cause = max(grown, key=lambda name: grown[name])
    if grown[cause] <= 0:
        return "unknown", "neither its CPU nor its memory explains it"
    typical = statistics.median(others[cause])
    name = "CPU" if cause == "cpu" else "memory"
    return (
        cause,
        f"its machine's {name} is at {now[cause]:.0%}, usually {usual[cause]:.0%}, the others' at {typical:.0%}",
    )


def _smoothed(before: list[float], now: list[float], pace: float) -> list[float]:
    if before == now:
        return now
    return [
        (old + pace * (new - old) if old == old else new) if new == new else old
        for old, new in zip(before, now, strict=True)
    ]


def _grown(now: float, usual: float, others: Sequence[float]) -> float:
    """How far above the nearer of the two bars; above 0 it may be the cause."""
    return max(now - usual - RISE, now - statistics.median(others) - ABOVE_OTHERS)
