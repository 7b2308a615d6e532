"""The result of a pull or a push."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Whether to refresh, and how long the others delayed this worker."""

    held_s: float = 0.0
    stale: bool = False
    """Orders of a newer generation have arrived or will arrive soon."""
    late: bool = False
    moved: bool = False
    """A newer placement has arrived or will arrive soon."""
