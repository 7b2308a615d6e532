"""Results of live runs and their twins: one value per run, and the values that the document shows for each row."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from controlplane.protocol.base import Value
from controlplane.simulator.outcome import Outcome
from controlplane.simulator.reproduction.claims import Claim, Finding, Played, Run
from controlplane.simulator.reproduction.claims import find as find_row
from controlplane.simulator.reproduction.live.emulation import job_of
from controlplane.simulator.reproduction.live.rows import LiveRow
from controlplane.simulator.reproduction.stored import StoredRow, digest_of, finding_of, row_of
from controlplane.simulator.scenarios import find

BAR: Final = 0.10
"""The largest allowed difference of live and twin, as a fraction of the twin's figure."""


SPREAD: Final = range(8)
"""Number of seeds for the range of a twin's figure."""


class Parts(Value, frozen=True, kw_only=True):
    """The parts of an iteration, in seconds: means over workers."""

    iteration_s: float
    compute_s: float
    exchange_s: float
    waiting_s: float
    control_s: float


class LiveRun(Value, frozen=True, kw_only=True):
    """One run on real processes, stored as a line of a file."""

    digest: str
    scenario: str
    policy: str
    seed: int
    live: Played
    at: str
    """Date and time of its end, UTC."""
    load: float
    """Load average of the machine over the last minute."""
    cores: int
    overran: float
    """Fraction of the computing time by which this machine was slower than the emulated ones."""
    code: str
    """A digest of the control plane's and the workers' code."""


class FailedRun(Value, frozen=True, kw_only=True):
    """One run whose job did not succeed; other runs can continue."""

    scenario: str
    policy: str
    seed: int
    why: str


class RunFacts(Value, frozen=True, kw_only=True):
    """One run and its twin, as shown in the document."""

    scenario: str
    policy: str
    seed: int
    at: str
    load: float
    cores: int
    overran: float
    code: str
    seconds: float
    live: Parts
    twin: Parts

    @property
    def deviation(self) -> float:
        """Deviation of the iteration time from the twin's."""
        return self.live.iteration_s / self.twin.iteration_s - 1.0


class LiveResult(Value, frozen=True, kw_only=True):
    """One row."""

    row: StoredRow
    twin: list[float | None]
    """The twin's figure for each seed."""
    runs: list[RunFacts]
    spread: list[float] = []
    """For a row beyond the limit: the twin's figures with ``SPREAD`` seeds."""

    @property
    def is_of_one_code(self) -> bool:
        """Whether all its runs were made by the same code."""
        return len({run.code for run in self.runs}) == 1


class LiveStored(Value, frozen=True, kw_only=True):
    """All rows that were measured, by name."""

    first_seed: int
    seeds: int
    rows: dict[str, LiveResult] = {}

    @property
    def range(self) -> range:
        """The seeds."""
        return range(self.first_seed, self.first_seed + self.seeds)


def run_digest(run: Run, seed: int) -> str:
    """Digest of the job and of what is measured; a change of the twin's simulation does not change it."""
    scenario = find(run.scenario)
    job = job_of(scenario, run.policy, seed)
    job.pop("name")
    target = scenario.numerics.target if scenario.numerics is not None else None
    declared = [job, scenario.spare_servers, scenario.warm_up, target]
    return hashlib.sha256(msgspec.json.encode(declared, order="sorted")).hexdigest()[:12]


def digest_of_rows(rows: Sequence[LiveRow], seeds: Sequence[int]) -> str:
    """Digest of all rows, scenarios and seeds."""
    return hashlib.sha256("\n".join(digest_of(row.claim, seeds) for row in rows).encode()).hexdigest()[:16]


def result_of(
    row: LiveRow, seeds: Sequence[int], runs: Mapping[str, LiveRun], twins: Mapping[str, Played]
) -> LiveResult:
    """The result of a row with complete runs; ``runs`` and ``twins`` are by digest."""
    keys = {(run, seed): run_digest(run, seed) for run in row.claim.runs for seed in seeds}
    live = find_row(row.claim, seeds, lambda run, seed: runs[keys[run, seed]].live)
    twin = find_row(row.claim, seeds, lambda run, seed: twins[keys[run, seed]])
    return LiveResult(
        row=row_of(live, seeds),
        twin=[] if row.untwinned else row_of(twin, seeds).values,
        runs=[_facts(runs[key], twins[key]) for key in dict.fromkeys(keys.values())],
    )


def is_complete(row: LiveRow, seeds: Sequence[int], runs: Mapping[str, LiveRun]) -> bool:
    """Whether there are results for all runs of the row as declared now."""
    return all(run_digest(run, seed) in runs for run in row.claim.runs for seed in seeds)


def finding(row: LiveRow, result: LiveResult) -> Finding:
    """The finding for a verdict by the rule of the simulated document."""
    return finding_of(row.claim, result.row)


def deviation(live: Iterable[float | None], twin: Iterable[float | None], *, least: float = 0.0) -> float | None:
    """Deviation of the mean live figure from the twin's, relative to the larger of the twin's and ``least``; None if
    one is missing.
    """
    known = [(a, b) for a, b in zip(live, twin, strict=False) if a is not None and b is not None]
    if not known:
        return None
    mine, its = (sum(values) / len(known) for values in zip(*known, strict=True))
    if mine == its:
        return 0.0
    whole = max(abs(its), least)
    return (mine - its) / whole if whole else None


def is_current(claim: Claim, result: LiveResult, seeds: Sequence[int]) -> bool:
    """Whether the row was measured as it is declared now."""
    return result.row.digest == digest_of(claim, seeds)


def _facts(run: LiveRun, twin: Played) -> RunFacts:
    return RunFacts(
        scenario=run.scenario,
        policy=run.policy,
        seed=run.seed,
        at=run.at,
        load=run.load,
        cores=run.cores,
        overran=round(run.overran, 4),
        code=run.code,
        seconds=round(run.live.outcome.seconds, 1),
        live=_parts(run.live.outcome),
        twin=_parts(twin.outcome),
    )


def _parts(outcome: Outcome) -> Parts:
    """Means over all iterations, so that they add up; the iteration time is after the warm-up."""
    reports = max(1, sum(outcome.progress))
    whole_s = outcome.seconds * len(outcome.progress) / reports
    return Parts(
        iteration_s=round(outcome.iteration_s, 5),
        compute_s=round(outcome.compute * whole_s, 5),
        exchange_s=round(outcome.communication * whole_s, 5),
        waiting_s=round(outcome.waiting * whole_s, 5),
        control_s=round(outcome.coordination * whole_s, 5),
    )
