"""Compares the results of a machine's test with the median of machines of its class.

Machines are of one class if they have the same value of the label ``class``; without that label, if their agents report
the same CPU model, number of CPUs and GPUs.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import Max, QuerySet

from controlplane.fleet.models import Agent, MachineTest

CLASS_LABEL: Final = "class"
ALIKE: Final = 0.05
"""Up to this relative deviation a machine counts as equal to its class."""

SLOW: Final = 0.15
"""From this relative deviation on it is marked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of measurement. ``less`` is set for durations, where less is better."""

    name: str
    title: str
    unit: str
    scale: float
    less: bool = False


OWN: Final = (
    Kind(name="cpu_flops", title="CPU, float32", unit="GFLOP/s", scale=1e9),
    Kind(name="memory_bytes_per_s", title="Memory", unit="GB/s", scale=1e9),
    Kind(name="gpu_flops", title="GPU, float32", unit="TFLOP/s", scale=1e12),
    Kind(name="gpu_memory_bytes_per_s", title="GPU memory", unit="GB/s", scale=1e9),
)
OF_LINKS: Final = (
    Kind(name="bytes_per_s", title="Link to {machine}", unit="MB/s", scale=1e6),
    Kind(name="round_trip_s", title="Round trip to {machine}", unit="ms", scale=1e-3, less=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One measurement compared with the other machines of its class."""

    name: str
    machine: str
    """The far end of a link; empty: the machine's own."""
    title: str
    unit: str
    value: float
    median: float | None
    """The median of the others; None if none was measured."""
    others: int
    deviation: float | None
    """Relative deviation from the median."""
    sentence: str
    slow: bool


def class_of(agent: Agent) -> str:
    """The class of the machine, as text."""
    if label := agent.placed_by.get(CLASS_LABEL):
        return f"{CLASS_LABEL}={label}"
    found = agent.environment
    gpus = str(found.get("device", "")).partition("(")[2].rstrip(")")
    cpus = f"{agent.cpu_count} CPU{'s' if agent.cpu_count != 1 else ''}"
    return ", ".join(filter(None, (found.get("cpu") or "unknown CPU", cpus, gpus)))


def emulation_note(agent: Agent) -> str:
    """A note if its slots are emulated, since the test measures the real machine; otherwise empty."""
    if not any(slot.get("emulate") for slot in agent.slots):
        return ""
    return "Its slots are emulated; the test measures the machine beneath, at its real speed."


def peers_results(agent: Agent, machines: "QuerySet[Agent]") -> list[Mapping[str, Any]]:
    """The latest result of each other machine of its class among ``machines``."""
    last = MachineTest.objects.filter(state=MachineTest.State.SUCCEEDED, agent__in=machines).exclude(agent=agent)
    ids = last.order_by().values("agent").annotate(last=Max("pk")).values("last")
    own = class_of(agent)
    rows = MachineTest.objects.filter(pk__in=ids).select_related("agent")
    return [row.result for row in rows if class_of(row.agent) == own]


def compared(result: Mapping[str, Any], peers: Sequence[Mapping[str, Any]]) -> list[Compared]:
    """Every measurement of the result, compared with the peers' results."""
    found = [
        _compared(kind, "", result[kind.name], [each[kind.name] for each in peers if each.get(kind.name)])
        for kind in OWN
        if result.get(kind.name)
    ]
    for link in measured_links(result):
        same = [other for each in peers for other in measured_links(each) if other["machine"] == link["machine"]]
        found += [_compared(kind, link["machine"], link[kind.name], [o[kind.name] for o in same]) for kind in OF_LINKS]
    return found


def measured_links(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The measured links."""
    return [link for link in result.get("links", []) if not link.get("failure")]


def failed_links(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The links that were not measured, each with the reason."""
    return [link for link in result.get("links", []) if link.get("failure")]


def _compared(kind: Kind, machine: str, value: float, others: Iterable[float]) -> Compared:
    known = [each for each in others if each > 0]
    median = statistics.median(known) if known else None
    deviation = value / median - 1.0 if median else None
    is_worse = deviation is not None and (deviation > 0) == kind.less
    return Compared(
        name=kind.name,
        machine=machine,
        title=kind.title.format(machine=machine),
        unit=kind.unit,
        value=value / kind.scale,
        median=None if median is None else median / kind.scale,
        others=len(known),
        deviation=deviation,
        sentence=_sentence(kind, deviation, len(known)),
        slow=is_worse and deviation is not None and abs(deviation) >= SLOW,
    )


def _sentence(kind: Kind, deviation: float | None, others: int) -> str:
    if deviation is None:
        return "no other machine of its class was measured"
    whose = f"the median of {others} other machine{'s' if others != 1 else ''} of its class"
    if abs(deviation) <= ALIKE:
        return f"as {whose}"
    more, less = ("longer", "shorter") if kind.less else ("above", "below")
    word = more if deviation > 0 else less
    return f"{abs(deviation):.0%} {word}{' than' if kind.less else ''} {whose}".replace("%", " %")
