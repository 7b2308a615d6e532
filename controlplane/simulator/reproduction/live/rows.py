"""A row of docs/reproduction-live.md: a headline of docs/reproduction.md, with scenarios for real processes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from controlplane.simulator.errors import SimulationError
from controlplane.simulator.reproduction.claims import Basis, Claim, Measure, Mechanism, Played, Run
from controlplane.simulator.reproduction.mechanisms import BLOCKS, DIFFER, MOVED, SHARES, in_every_pair
from controlplane.simulator.reproduction.papers import PAPERS
from controlplane.simulator.reproduction.psld import RECOVERED

SIMPLER: Final = {
    SHARES.name: DIFFER,
    **dict.fromkeys((BLOCKS.name, in_every_pair(BLOCKS).name, RECOVERED.name), MOVED),
}
"""Simpler mechanisms for real processes: their machines and links are steady, so shares differ only because of speeds,
and blocks move only because of slow servers.
"""


def _seen_live(mechanism: Mechanism | None) -> Mechanism | None:
    return SIMPLER.get(mechanism.name, mechanism) if mechanism is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRow:
    """One headline, live. Its reference, figure, kind and rule are those of the simulated row."""

    name: str
    paper: str
    says: str
    """How the statement of the simulated row begins."""
    alone: tuple[str, float] | None = None
    """The paper's statement and figure for one job, if the simulated row is over several."""
    runs: tuple[Run, ...]
    note: str
    """Reduced sizes and other differences from the simulated row."""
    measure: Measure | None = None
    """None: the one of the simulated row."""
    mechanism: Mechanism | None = None
    """None: the one of the simulated row, or its replacement in ``SIMPLER``."""
    basis: Basis | None = None
    """None: the one of the simulated row."""
    untwinned: str = ""
    """Why the simulator cannot give this figure; empty if it can."""
    compared: Literal["figure", "excess", "part"] = "figure"
    """What must be within a tenth of the twin: the figure; for a ratio minus 1, the ratio; for a fraction, the whole.
    """
    outside: str = ""
    """Why the live figure is known to differ from its twin by more than a tenth."""

    @property
    def number(self) -> int:
        """Number of the simulated row in its paper.

        Raises:
            SimulationError: if there is no such row, or several.
        """
        found = [at for at, each in enumerate(PAPERS[self.paper][1], start=1) if each.statement.startswith(self.says)]
        if len(found) != 1:
            raise SimulationError(f"live row {self.name}: found {len(found)} rows that begin with {self.says!r}, not 1")
        return found[0]

    @property
    def headline(self) -> Claim:
        """The simulated row."""
        return PAPERS[self.paper][1][self.number - 1]

    @property
    def claim(self) -> Claim:
        """The same headline with live runs."""
        known = self.headline
        statement, paper = self.alone or (known.statement, known.figure)
        return replace(
            known,
            statement=statement,
            figure=paper,
            runs=self.runs,
            measure=self.measure or known.measure,
            mechanism=self.mechanism or _seen_live(known.mechanism),
            basis=self.basis or known.basis,
            beside=(),
            note=self.note,
        )


COORDINATION: Final = Measure(
    "part of the workers' time in which they wait for the control plane", lambda played: played[0].outcome.coordination
)

PART: Final = 0.75
"""Fraction of the baseline's iterations whose loss is the target of both runs."""


def _loss_after(played: Played, part: float) -> float | None:
    """The loss after that fraction of a run's updates."""
    until = part * played.outcome.updates
    return next((loss for _, updates, loss in played.losses if updates >= until), None)


def to_its_loss(of: str) -> Measure:
    """``seconds`` or ``updates`` to the loss that the second run has after three quarters of its updates, the first
    run's divided by the second's.

    None if a run has that loss before its first update, since then the second run has not learned.
    """

    def measure(played: Sequence[Played]) -> float | None:
        wanted = _loss_after(played[1], PART)
        if wanted is None or any(one.losses and one.losses[0][2] <= wanted for one in played[:2]):
            return None
        reached = [
            next(((at_s, float(updates)) for at_s, updates, loss in one.losses if loss <= wanted), None)
            for one in played[:2]
        ]
        mine, its = (found[0 if of == "seconds" else 1] if found else None for found in reached)
        return mine / its if mine is not None and its else None

    return Measure(f"{of} to the second run's loss after {PART:g} of its updates, the first over the second", measure)
