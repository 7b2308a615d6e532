"""Why a worker may be slow: what its machine's CPU and memory readings say beside its own past and the others'."""

import statistics
from collections.abc import Mapping, Sequence

from controlplane.core.choices import Observation
from controlplane.protocol.base import Value

RISE, ABOVE_OTHERS = 0.15, 0.25
"""How much higher than usual, or than the others' median, a reading must be to be the cause."""

QUICK, SLOW = 0.3, 0.02


class Readings(Value, frozen=True, kw_only=True, array_like=True):
    """Of one machine: what its readings are now and what they usually are, smoothed."""

    cpu: float
    memory: float
    usual_cpu: float
    usual_memory: float


def read(known: Mapping[int, Readings], observations: Sequence[Observation]) -> dict[int, Readings]:
    """The readings with one more iteration; only machines that were seen are kept with those known before."""
    readings = dict(known)
    for seen in observations:
        before = readings.get(seen.rank)
        if before is None:
            readings[seen.rank] = Readings(
                cpu=seen.cpu, memory=seen.memory, usual_cpu=seen.cpu, usual_memory=seen.memory
            )
            continue
        readings[seen.rank] = Readings(
            cpu=before.cpu + QUICK * (seen.cpu - before.cpu),
            memory=before.memory + QUICK * (seen.memory - before.memory),
            usual_cpu=before.usual_cpu + SLOW * (seen.cpu - before.usual_cpu),
            usual_memory=before.usual_memory + SLOW * (seen.memory - before.usual_memory),
        )
    return readings


def cause_of(kind: str, rank: int, readings: Mapping[int, Readings]) -> tuple[str, str]:
    """cpu, memory, network or unknown, and the clause that says so."""
    if kind == "communication":
        return "network", "its link, not its compute"
    own = readings.get(rank)
    others = [reading for other, reading in readings.items() if other != rank]
    if own is None or not others:
        return "unknown", "nothing is known of its machine's load"
    grown = {
        "cpu": _grown(own.cpu, own.usual_cpu, [other.cpu for other in others]),
        "memory": _grown(own.memory, own.usual_memory, [other.memory for other in others]),
    }
    cause = max(grown, key=lambda name: grown[name])
    if grown[cause] <= 0:
        return "unknown", "neither its CPU nor its memory explains it"
    now, then = (own.cpu, own.usual_cpu) if cause == "cpu" else (own.memory, own.usual_memory)
    typical = statistics.median(getattr(other, cause) for other in others)
    name = "CPU" if cause == "cpu" else "memory"
    return cause, f"its machine's {name} is at {now:.0%}, usually {then:.0%}, the others' at {typical:.0%}"


def _grown(now: float, usual: float, others: Sequence[float]) -> float:
    """How far above the nearer of the two bars; above 0 it may be the cause."""
    return max(now - usual - RISE, now - statistics.median(others) - ABOVE_OTHERS)
