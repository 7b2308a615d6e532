"""Why a worker may be slow: its machine's CPU and memory readings, compared with its past and with other machines."""

import math
import statistics
from collections.abc import Sequence

from controlplane.protocol.base import Value

RISE, ABOVE_OTHERS = 0.15, 0.25
"""How much higher than usual, or than the others' median, a reading must be to be the cause."""

QUICK, SLOW = 0.3, 0.02


class Readings(Value, frozen=True, kw_only=True, array_like=True):
    """Present and usual (smoothed) readings of the machines of ``ranks``, in that order."""

    ranks: list[int] = []
    cpu: list[float] = []
    memory: list[float] = []
    usual_cpu: list[float] = []
    usual_memory: list[float] = []

    def for_ranks(self, ranks: list[int]) -> "Readings":
        """The readings of these ranks; unknown for ranks without any."""
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
        """One machine's present and usual CPU and memory."""
        if rank not in self.ranks:
            return None
        at = self.ranks.index(rank)
        now = {"cpu": self.cpu[at], "memory": self.memory[at]}
        return now, {"cpu": self.usual_cpu[at], "memory": self.usual_memory[at]}

    def of_others(self, rank: int) -> dict[str, list[float]]:
        """The present readings of all other machines."""
        read = {"cpu": self.cpu, "memory": self.memory}
        return {
            name: [value for other, value in zip(self.ranks, values, strict=True) if other != rank]
            for name, values in read.items()
        }


def read(known: Readings, ranks: list[int], *, cpu: list[float], memory: list[float]) -> Readings:
    """Add one iteration of the machines of ``ranks``; a new machine's first reading counts as usual."""
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
        return "unknown", "its machine's load is unknown"
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
    """How far a reading exceeds the lower of the two thresholds; above 0 it may be the cause."""
    return max(now - usual - RISE, now - statistics.median(others) - ABOVE_OTHERS)
