"""A headline of a paper as runs, a measure of them, and the mechanism that must be seen at work in them."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from controlplane.protocol.base import Value
from controlplane.simulator.outcome import Outcome
from controlplane.simulator.reproduction.verdicts import Kind, Verdict, judge, lowered

Basis = Literal["predicted", "calibrated", "by construction", "our reading"]
"""What a row shows: a figure of the paper, with no setting chosen by it; with one that was; a result that is true by
construction; or one for which the paper has no figure in its text or no setting, so both bounds were chosen here."""


class Played(Value, frozen=True, kw_only=True):
    """What is kept of one run."""

    outcome: Outcome
    spans: list[float]
    """How long each closed iteration took, from the second on."""
    accuracies: list[float]
    """Of the last evaluations, up to ten."""
    curve: list[tuple[float, int, float | None]] = []
    """Of all evaluations: virtual time, updates, accuracy."""
    losses: list[tuple[float, int, float]] = []
    """Likewise: virtual time, updates, held-out loss."""
    added_servers: int = 0
    """Servers that the placement asked for and got."""
    moved_splits: int = 0
    """Splits of the data that got to another worker."""
    work: list[tuple[int, float]] = []
    """By rank: samples, and the seconds of computing and sending that they took."""
    first_shares: list[tuple[int, int]] = []
    """Of worker 0: each share that it was given, with the iteration from which it held."""
    exchanges: list[tuple[float, float]] = []
    """Of each change of placement: a worker's exchange with all servers, measured before and after, in seconds."""
    rmse: float | None = None
    """Of the forecasts that shares followed, in samples per second; where there are such."""
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Run:
    """One scenario under one policy."""

    scenario: str
    policy: str
    to_target: bool = False
    """It may end when the target is reached."""


@dataclass(frozen=True, slots=True)
class Measure:
    """From one seed's runs, in order, to the figure; None where a run did not get that far."""

    name: str
    of: Callable[[Sequence[Played]], float | None]

    def __call__(self, played: Sequence[Played]) -> float | None:
        """Of these runs."""
        return self.of(played)


@dataclass(frozen=True, slots=True)
class Mechanism:
    """What the paper's effect comes from, and whether it was at work in one seed's runs."""

    name: str
    acts: Callable[[Sequence[Played]], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One headline."""

    where: str
    statement: str
    figure: float
    """The paper's, as ``measure`` has it."""
    upto: float | None = None
    """The other end, where the paper gives a range."""
    kind: Kind = "effect"
    least: float | None = None
    """Of *at most*: the lower bound of the measured figure; 0 if it cannot be negative (parts, distances, times)."""
    basis: Basis
    runs: tuple[Run, ...] = ()
    """None: it follows from the policy alone, or is not measured."""
    measure: Measure | None
    """None: nothing here measures it; the note says why."""
    mechanism: Mechanism | None = None
    tolerance: float | None = None
    """Of *equal*: how far the measured figure may be from the paper's."""
    otherwise: float | None = None
    """Of *equal*: what the figure would be if the paper were wrong."""
    beside: tuple[tuple[str, tuple[Run, ...]], ...] = ()
    """Our own policies by name, with the runs for the same measure."""
    note: str
    """What was calibrated, what was shrunk, and why figures differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What came out for one headline."""

    claim: Claim
    values: tuple[float | None, ...]
    """One for each seed; None where it did not get far enough."""
    acted: int
    """Seeds in which the mechanism was at work."""
    beside: tuple[tuple[str, tuple[float | None, ...]], ...] = ()

    @property
    def known(self) -> list[float]:
        """Of the seeds that got far enough."""
        return known(self.values)

    @property
    def missing(self) -> int:
        """Seeds that did not get far enough."""
        return len(self.values) - len(self.known)

    @property
    def mean(self) -> float | None:
        """Over the seeds that got far enough."""
        return statistics.fmean(self.known) if self.known else None

    @property
    def verdict(self) -> Verdict:
        """By the mean; a miss lowers it, and half of the seeds missing or one without the mechanism is a *not*."""
        claim = self.claim
        if claim.measure is None:
            return "not measured"
        mean = self.mean
        if mean is None or 2 * self.missing >= len(self.values) or self.acted < len(self.values):
            return "not"
        verdict = judge(claim.kind, claim.figure, mean, upto=claim.upto, tolerance=claim.tolerance, least=claim.least)
        return lowered(verdict) if self.missing else verdict


def find(claim: Claim, seeds: Sequence[int], played: Callable[[Run, int], Played]) -> Finding:
    """Measure a headline over the seeds."""
    if claim.measure is None:
        return Finding(claim=claim, values=(), acted=0)
    own = [[played(run, seed) for run in claim.runs] for seed in seeds]
    beside = [
        (name, tuple(claim.measure([played(run, seed) for run in runs]) for seed in seeds))
        for name, runs in claim.beside
    ]
    acted = sum(claim.mechanism is None or claim.mechanism.acts(each) for each in own)
    return Finding(claim=claim, values=tuple(claim.measure(each) for each in own), acted=acted, beside=tuple(beside))


def known(values: Sequence[float | None]) -> list[float]:
    """Those that are figures."""
    return [value for value in values if value is not None]


def against(scenario: str, policies: Sequence[str], base: str) -> tuple[tuple[str, tuple[Run, ...]], ...]:
    """Our own policies against the same baseline."""
    return tuple((policy, (Run(scenario, policy), Run(scenario, base))) for policy in policies)


def runs_of(claims: Sequence[Claim]) -> list[Run]:
    """Every run that is needed, once."""
    found = {run: None for claim in claims for run in claim.runs}
    found |= {run: None for claim in claims for _, runs in claim.beside for run in runs}
    return list(found)
