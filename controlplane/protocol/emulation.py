"""Emulation of slower machines and links, for demonstrations and tests; pages mark what is emulated."""

import csv
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from controlplane.protocol.base import Fraction
from controlplane.protocol.parts import Iterations, Part, Seed, SpecError

MAX_POINTS = 500
COLUMNS = ("time", "speed", "cpu", "memory")
Speed = Annotated[float, Meta(gt=0.0, le=1e9)]
"""Samples per second."""


class TracePoint(Part, frozen=True, kw_only=True, omit_defaults=True):
    """The machine's speed and load from ``time`` on, in seconds since the process started."""

    time: Annotated[float, Meta(ge=0.0, le=1e9)]
    speed: Speed
    cpu: Fraction = 0.0
    memory: Fraction = 0.0


class Competitor(Part, frozen=True, kw_only=True, omit_defaults=True):
    """A competing process that starts and ends at random, once a second at most."""

    begins: Annotated[float, Meta(gt=0.0, le=1.0, description="Probability per second that it starts.")] = 0.1
    ends: Annotated[float, Meta(gt=0.0, le=1.0, description="Probability per second that it ends.")] = 0.1
    takes: Annotated[float, Meta(gt=0.0, lt=1.0, description="Fraction of the machine that it uses.")] = 0.5
    seed: Seed = 0


Bandwidth = Annotated[float, Meta(ge=1.0, le=1e12)]
"""Bytes per second, each way."""


class LinkChange(Part, frozen=True, kw_only=True):
    """The speed of an emulated link from ``iteration`` on; null: no longer limited."""

    iteration: Iterations
    bytes_per_second: Bandwidth | None = None


class LinkEmulation(Part, frozen=True, kw_only=True):
    """The link of a server, or of a worker, slower than the real one; null: not limited at first."""

    bytes_per_second: Bandwidth | None = None
    changes: list[LinkChange] = []

    def at(self, iteration: int) -> float | None:
        """The limit in ``iteration``."""
        passed = [change for change in self.changes if change.iteration <= iteration]
        return max(passed, key=lambda change: change.iteration).bytes_per_second if passed else self.bytes_per_second


class Emulation(Part, frozen=True, kw_only=True, omit_defaults=True):
    """A machine slower than the one it runs on: real gradients, then a pause.

    Exactly one of ``samples_per_second``, ``slower`` and ``trace``; a competitor and a link can be added to any.
    """

    samples_per_second: Speed | None = None
    slower: Annotated[float, Meta(ge=1.0, le=10_000.0)] | None = None
    """Work takes this many times as long."""
    trace: Annotated[list[TracePoint], Meta(min_length=1, max_length=MAX_POINTS)] | None = None
    """Speed and the load that is reported, together, by time."""
    repeat: bool = False
    """Whether the trace repeats, with its last point as long as the one before; otherwise the last point applies
    indefinitely.
    """
    competitor: Competitor | None = None
    launch_s: Annotated[float, Meta(ge=0.0, le=3600.0)] = 0.0
    """With ``samples_per_second``: a fixed time per iteration, in addition."""
    saturation: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    """With ``samples_per_second``: iterations with fewer samples take as long as with this many, as on a GPU."""
    link: LinkEmulation | None = None
    """Between this worker and all servers."""

    def __post_init__(self) -> None:
        ways = [way for way in (self.samples_per_second, self.slower, self.trace) if way is not None]
        if len(ways) > 1 or not (ways or self.competitor):
            raise ValueError("exactly one of samples_per_second, slower and trace, or a competitor alone")
        if self.samples_per_second is None and (self.launch_s or self.saturation):
            raise ValueError("samples_per_second with launch_s and saturation, which are of a GPU's time by its batch")
        times = [point.time for point in self.trace or ()]
        if times and (times[0] != 0.0 or sorted(set(times)) != times):
            raise ValueError("a trace whose times rise from 0")
        if self.repeat and len(times) < 2:
            raise ValueError("a trace of two points or more that can repeat")

    @property
    def description(self) -> str:
        """A description of the emulation, for display."""
        parts = []
        if self.samples_per_second is not None:
            parts.append(f"{self.samples_per_second:,.6g} samples/s")
        if self.launch_s:
            parts.append(f"{self.launch_s:.3g} s more for each iteration")
        if self.saturation:
            parts.append(f"no less time for fewer than {self.saturation} samples")
        if self.slower is not None:
            parts.append(f"{self.slower:g} times slower")
        if self.trace is not None:
            parts.append(f"a trace of {len(self.trace)} points")
        if self.competitor is not None:
            parts.append(f"a competing process that takes {self.competitor.takes:.0%}")
        if self.link is not None:
            parts.append("a slower link to the servers")
        return ", ".join(parts)


def read_trace(text: str, field: str = "trace") -> list[dict[str, Any]]:
    """The points of a CSV text with the columns time, speed and, if it has them, cpu and memory.

    Raises:
        SpecError: with the line that cannot be read.
    """
    rows = csv.reader(text.strip("\ufeff \t\r\n").splitlines(), skipinitialspace=True)
    try:
        names = [name.strip() for name in next(rows, [])]
        if not {"time", "speed"} <= set(names) <= set(COLUMNS) or len(set(names)) < len(names):
            raise SpecError(field, ",".join(names), f"a first line that names columns: {','.join(COLUMNS)}")
        points = [_point(names, row, field, rows.line_num) for row in rows if row]
    except csv.Error as error:
        raise SpecError(field, f"line {rows.line_num}", f"numbers with commas between ({error})") from None
    return points


def _point(names: list[str], row: list[str], field: str, line: int) -> dict[str, Any]:
    try:
        return {name: float(value) for name, value in zip(names, row, strict=True)}
    except ValueError:
        raise SpecError(field, f"line {line}: {row}", "a number in each column, and no more") from None


def parse_emulation(document: object, field: str) -> Emulation:
    """One machine from a plain document.

    Raises:
        SpecError: where it is none.
    """
    try:
        return msgspec.convert(document, Emulation, strict=True)
    except msgspec.ValidationError as error:
        raise SpecError(field, document, str(error)) from None
