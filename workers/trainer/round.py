"""What came of asking others for parameters, or of giving them an update."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Whether to refresh, and for how long the others held this worker up."""

    held_s: float = 0.0
    stale: bool = False
    """Orders of a newer generation are there, or about to come."""
    late: bool = False
    moved: bool = False
    """A newer placement is there, or about to come."""
