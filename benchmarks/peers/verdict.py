"""Checks the targets: compares the times to the target accuracy."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.peers.figures import Figures

OURS: Final = "Paceline"
BEHIND_BY_HAND: Final = 0.03
MOST_LATE: Final = 0.05
"""Highest fraction of late passes; above it, a run measures this computer instead of the emulated machines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A contender in one scene, at its best setting; ``absent`` says why it has no figures."""

    scene: str
    name: str
    setting: str = ""
    figures: Figures | None = None
    absent: str = ""
    tried: int = 1
    remark: str = ""
    judged: bool = False
    """Whether it makes the same steps on the same samples as others."""
    by_hand: bool = False

    @property
    def invalid(self) -> str:
        """Why the figures are not the emulated machines'; empty if they are."""
        if self.figures is None or self.figures.late <= MOST_LATE:
            return ""
        return f"invalid, {self.figures.late:.0%} of its passes is not the emulated machines' time"


def failures(rows: Sequence[Row]) -> list[str]:
    """Targets that Paceline's fastest contender missed, for each scene."""
    found = []
    for scene in dict.fromkeys(row.scene for row in rows):
        here = [row for row in rows if row.scene == scene]
        mine = [row for row in here if row.judged and row.figures]
        if not mine:
            continue
        best = min(mine, key=_seconds)
        for other in here:
            if other.name.startswith(OURS) or other.figures is None:
                continue
            allowed = 1.0 + BEHIND_BY_HAND if other.by_hand and scene == "steady" else 1.0
            ratio = _seconds(best) / _seconds(other)
            if ratio > allowed:
                found.append(
                    f"{scene}: {best.name} took {ratio:.3f} of {other.name}'s time, expected at most {allowed:g}"
                )
    return found + [f"{row.scene}: {row.name} is {row.invalid}" for row in rows if row.invalid]


def _seconds(row: Row) -> float:
    assert row.figures is not None
    return row.figures.to_target_s
