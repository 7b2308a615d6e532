"""What live runs and their twins gave: one value for each run, and of these what the document shows of each row."""

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
"""The most by which live and twin may differ, as a part of the twin's figure."""


SPREAD: Final = range(8)
"""Seeds by which a twin's figure is shown to vary."""


class Parts(Value, frozen=True, kw_only=True):
    """What an iteration consists of, in seconds of a worker on average."""

    iteration_s: float
    compute_s: float
    exchange_s: float
    waiting_s: float
    control_s: float


class LiveRun(Value, frozen=True, kw_only=True):
    """One run on real processes, as it is kept: a line of a file."""

    digest: str
    scenario: str
    policy: str
    seed: int
    live: Played
    at: str
    """The day and time of its end, UTC."""
    load: float
    """Of the machine over the last minute: processes that want a processor."""
    cores: int
    overran: float
    """Part of all computing time that was this machine's and not that of the emulated ones."""
    code: str
    """A digest of the control plane's and the workers' code."""


class FailedRun(Value, frozen=True, kw_only=True):
    """One run whose job did not succeed: others can still be made."""

    scenario: str
    policy: str
    seed: int
    why: str


class RunFacts(Value, frozen=True, kw_only=True):
    """One run beside its twin, as the document shows it."""

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
        """Of the iteration time, from the twin's."""
        return self.live.iteration_s / self.twin.iteration_s - 1.0


class LiveResult(Value, frozen=True, kw_only=True):
    """One row."""

    row: StoredRow
    twin: list[float | None]
    """One figure for each seed."""
    runs: list[RunFacts]
    spread: list[float] = []
    """Of a row that is outside the bar: the twin's figures with ``SPREAD`` seeds."""


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
    """Of the job and of what is read from it: a twin that is simulated otherwise is no other run."""
    scenario = find(run.scenario)
    job = job_of(scenario, run.policy, seed)
    job.pop("name")
    target = scenario.numerics.target if scenario.numerics is not None else None
    declared = [job, scenario.spare_servers, scenario.warm_up, target]
    return hashlib.sha256(msgspec.json.encode(declared, order="sorted")).hexdigest()[:12]


def digest_of_rows(rows: Sequence[LiveRow], seeds: Sequence[int]) -> str:
    """Of all rows, scenarios and seeds."""
    return hashlib.sha256("\n".join(digest_of(row.claim, seeds) for row in rows).encode()).hexdigest()[:16]


def result_of(
    row: LiveRow, seeds: Sequence[int], runs: Mapping[str, LiveRun], twins: Mapping[str, Played]
) -> LiveResult:
    """A row whose runs all were made; ``runs`` and ``twins`` by their digest."""
    keys = {(run, seed): run_digest(run, seed) for run in row.claim.runs for seed in seeds}
    live = find_row(row.claim, seeds, lambda run, seed: runs[keys[run, seed]].live)
    twin = find_row(row.claim, seeds, lambda run, seed: twins[keys[run, seed]])
    return LiveResult(
        row=row_of(live, seeds),
        twin=[] if row.untwinned else row_of(twin, seeds).values,
        runs=[_facts(runs[key], twins[key]) for key in dict.fromkeys(keys.values())],
    )


def is_complete(row: LiveRow, seeds: Sequence[int], runs: Mapping[str, LiveRun]) -> bool:
    """Whether all runs of the row were made as they are declared now."""
    return all(run_digest(run, seed) in runs for run in row.claim.runs for seed in seeds)


def finding(row: LiveRow, result: LiveResult) -> Finding:
    """For a verdict by the rule of the simulated document."""
    return finding_of(row.claim, result.row)


def deviation(live: Iterable[float | None], twin: Iterable[float | None], *, least: float = 0.0) -> float | None:
    """Of the mean live figure from the twin's, as a part of that, or of ``least`` where that is more; None: one of them
    is no figure.
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
    """Of all iterations, so that they add up; the whole is past the warm-up."""
    reports = max(1, sum(outcome.progress))
    whole_s = outcome.seconds * len(outcome.progress) / reports
    return Parts(
        iteration_s=round(outcome.iteration_s, 5),
        compute_s=round(outcome.compute * whole_s, 5),
        exchange_s=round(outcome.communication * whole_s, 5),
        waiting_s=round(outcome.waiting * whole_s, 5),
        control_s=round(outcome.coordination * whole_s, 5),
    )
