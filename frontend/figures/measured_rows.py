"""The data of the default charts of measurements."""

from collections.abc import Mapping
from dataclasses import dataclass

from frontend.figures.rows import Floats, Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredWorker:
    """Measurements of one worker; an entry covers ``Measured.width`` iterations."""

    rank: int
    label: str
    iteration: Integers
    elapsed_s: Floats
    values: Mapping[str, Floats]
    """By measurement; NaN where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The data of the default charts of workers' measurements."""

    workers: tuple[MeasuredWorker, ...]
    roster: int
    width: int
    reports: int
    batch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Samples of a machine, oldest first."""

    at_ms: Integers
    values: Mapping[str, Floats]
    """By measurement; NaN where it is not known."""
