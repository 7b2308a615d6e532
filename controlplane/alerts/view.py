"""Defines the data that conditions are evaluated on. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNow:
    """A job that is not over, or ended recently."""

    name: str
    user: str
    state: str
    iteration: int
    reason: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The machine labels that it requests."""
    last_report_at: datetime | None = None
    """Its last report, or when it began to start, run or wait for ranks; None: it does none of these."""
    awaited: str = ""
    """What its state waits for."""
    waiting_share: float | None = None
    """Waiting as a fraction of worker time over about the last half minute; None: not known yet."""
    ended_at: datetime | None = None
    has_diverged: bool = False
    """Whether it failed because a loss or its parameters were not finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A process of a live job that was lost and not yet replaced, or lost just now; or a silent rank."""

    job: int
    title: str
    """``w3`` or ``s0``."""
    machine: str
    at: datetime
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagNow:
    """An open finding that is neither acknowledged nor muted."""

    job: int
    title: str
    kind: str
    sentence: str
    cost: float
    """The fraction of an iteration that it costs; 0: unknown or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A checkpoint that cannot be used."""

    job: int
    decision: str
    """Its incarnation and sequence, ``0-17``."""
    at: datetime
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaneNow:
    """The state of the control plane. Unknown numbers are None, for which no condition is true."""

    ingest_lag_s: float | None = None
    """How long the oldest entry that is not in the database has waited."""
    ingest_sentence: str = ""
    disk_free: float | None = None
    disk_path: str = ""
    disk_free_bytes: int = 0
    redis_used: float | None = None
    redis_sentence: str = ""
    failing: Mapping[str, str] = field(default_factory=dict)
    """Error of the last failed delivery, by target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """All data of one evaluation."""

    now: datetime
    jobs: Mapping[int, JobNow] = field(default_factory=dict)
    losses: tuple[Loss, ...] = ()
    flags: tuple[FlagNow, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    plane: PlaneNow = field(default_factory=PlaneNow)
