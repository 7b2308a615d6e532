"""Whether the bars are kept: who is ahead, by the time to the target."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.peers.figures import Figures

OURS: Final = "Paceline"
BEHIND_BY_HAND: Final = 0.03
MOST_LATE: Final = 0.05
"""Of the passes' time; above it a run measures this computer."""


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
    """One of Paceline's ways that takes the same steps of the same samples as others."""
    by_hand: bool = False

    @property
    def invalid(self) -> str:
        """Why the figures are not the emulated machines'; empty if they are."""
        if self.figures is None or self.figures.late <= MOST_LATE:
            return ""
        return f"invalid, {self.figures.late:.0%} of its passes is not the emulated machines' time"


def failures(rows: Sequence[Row]) -> list[str]:
    """Bars that were missed, in each scene by Paceline's fastest way."""
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
                    f"{scene}: {best.name} took {ratio:.3f} of {other.name}'s time, at most {allowed:g} is wanted"
                )
    return found + [f"{row.scene}: {row.name} is {row.invalid}" for row in rows if row.invalid]


def _seconds(row: Row) -> float:
    assert row.figures is not None
    return row.figures.to_target_s
