"""Power and prices: ``energy`` in a job's spec, and the corresponding labels of machines.

If nothing is measured or stated, a worker draws ``IDLE_WATTS`` while it waits and ``BUSY_WATTS`` while it works: about
the power of one data center GPU with its part of the machine.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from controlplane.protocol.base import Value
from controlplane.protocol.parts import Part

IDLE_WATTS: Final = 60.0
BUSY_WATTS: Final = 300.0

JOULES_PER_KWH: Final = 3.6e6

Watts = Annotated[float, Meta(ge=0.0, le=1e6)]
Price = Annotated[float, Meta(ge=0.0, le=1e6)]

LABELS: Final = {"idle-watts": "idle_watts", "busy-watts": "busy_watts", "hour-price": "hour"}
"""Labels of machines, and the fields that they set for every worker there."""

Objective = Literal["time", "energy", "cost"]


class Power(Part, frozen=True, kw_only=True, omit_defaults=True):
    """Power and price of one worker; None: from the machine's labels or the whole job."""

    idle_watts: Watts | None = None
    busy_watts: Watts | None = None
    hour: Price | None = None

    def __post_init__(self) -> None:
        check_order(self.idle_watts, self.busy_watts)


class Energy(Part, frozen=True, kw_only=True):
    """The power model of a job's workers, and prices. Measured power overrides ``busy_watts``."""

    idle_watts: Watts | None = None
    """While a worker waits; None: 60."""
    busy_watts: Watts | None = None
    """While it loads, computes and communicates; None: 300."""
    hour: Price | None = None
    """The price of an hour of one worker, busy or not; None: 0."""
    kwh: Price = 0.0
    """The price of a kilowatt-hour."""
    workers: list[Power | None] | None = None
    """Values of single workers, by rank; they override their machines' labels."""

    def __post_init__(self) -> None:
        check_order(self.idle_watts, self.busy_watts)


class Draw(Value, frozen=True, kw_only=True):
    """Power and cost of one worker, from all sources."""

    idle_watts: float
    busy_watts: float
    hour: float = 0.0
    kwh: float = 0.0

    def joules(self, busy_s: float, whole_s: float) -> float:
        """Of an iteration of ``whole_s`` in which it was busy for ``busy_s``."""
        return self.idle_watts * whole_s + (self.busy_watts - self.idle_watts) * busy_s

    def cost(self, joules: float, whole_s: float) -> float:
        """The cost of this energy and of the worker's time."""
        return joules * self.kwh / JOULES_PER_KWH + self.hour * whole_s / 3600

    def with_busy(self, watts: float) -> "Draw":
        """The same with a measured power while busy."""
        return Draw(idle_watts=min(self.idle_watts, watts), busy_watts=watts, hour=self.hour, kwh=self.kwh)


def check_order(idle: float | None, busy: float | None) -> None:
    """Raise ``ValueError`` if the idle power exceeds the busy power."""
    least = IDLE_WATTS if idle is None and busy is not None and busy < IDLE_WATTS else idle
    if least is not None and (most := BUSY_WATTS if busy is None else busy) < least:
        raise ValueError(f"busy_watts of at least idle_watts, which is {least:g} (found {most:g}); give both")


def draw_of(energy: Energy, rank: int, power: Power | None = None) -> Draw:
    """Power of worker ``rank`` on a machine with the labelled ``power``: the first of the spec's list, the labels, the
    spec, the default.
    """
    own = energy.workers[rank] if energy.workers is not None and rank < len(energy.workers) else None
    idle = _first(own, power, energy, "idle_watts")
    busy = _first(own, power, energy, "busy_watts")
    idle_watts = IDLE_WATTS if idle is None else idle
    return Draw(
        idle_watts=idle_watts,
        busy_watts=max(idle_watts, BUSY_WATTS if busy is None else busy),
        hour=_first(own, power, energy, "hour") or 0.0,
        kwh=energy.kwh,
    )


def labelled_power(labels: Mapping[str, str]) -> Power | None:
    """The values in a machine's labels, or None. A label that is not a number in range is ignored."""
    found: dict[str, Any] = {}
    for label, field in LABELS.items():
        try:
            value = float(labels[label])
        except (KeyError, ValueError):
            continue
        if 0.0 <= value <= 1e6:
            found[field] = value
    if not found:
        return None
    try:
        return Power(**found)
    except ValueError:
        return Power(hour=found.get("hour"))


def _first(own: Power | None, power: Power | None, energy: Energy, field: str) -> float | None:
    for each in (own, power, energy):
        if each is not None and (value := getattr(each, field)) is not None:
            return float(value)
    return None
