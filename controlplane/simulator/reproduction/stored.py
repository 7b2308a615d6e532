"""Measurements as stored next to the document: rows with a digest of everything that determines their figures.

A digest covers the scenarios with all values that are not defaults, the policies, the measure, the mechanism and the
seeds. Verdicts are not stored: they are computed whenever the document is made. Each row also has a digest of the code
that measured it; a sample of the rows is measured again to check the present code.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from controlplane.protocol.base import Value
from controlplane.simulator.reproduction.claims import Claim, Finding, Run
from controlplane.simulator.scenario import chosen
from controlplane.simulator.scenarios import find

DIGITS: Final = 6
"""Significant digits that are stored."""
CLOSE: Final = 1e-4
"""Relative difference up to which figures are equal: processors round sums differently."""
SAMPLED: Final = 10
"""One in this many rows is measured again, with one of its seeds."""
DEAR_S: Final = 6.0
"""The sample contains one of the rows whose seeds take longer than this."""
TEXTS: Final = ("title", "story", "paper")
"""Fields of a scenario that have no effect on its runs."""


class StoredRow(Value, frozen=True, kw_only=True):
    """One row: the value of each seed."""

    digest: str
    code: str = ""
    """A digest of the code that measured it; empty if it was not recorded."""
    statement: str
    values: list[float | None] = []
    acted: int = 0
    beside: dict[str, list[float | None]] = {}


class Stored(Value, frozen=True, kw_only=True):
    """All rows of all papers, in the order of the document."""

    first_seed: int
    seeds: int
    papers: dict[str, list[StoredRow]]
    runs: int = 0
    cost_s: dict[str, float] = {}
    """CPU time by scenario."""

    @property
    def range(self) -> range:
        """The seeds."""
        return range(self.first_seed, self.first_seed + self.seeds)

    @property
    def digest(self) -> str:
        """Digest of all rows, of the code that measured them, and of the seeds."""
        parts = [str(self.range)] + [f"{row.digest} {row.code}" for rows in self.papers.values() for row in rows]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    @property
    def codes(self) -> Counter[str]:
        """The number of measured rows by digest of the code; empty if the code was not recorded."""
        return Counter(row.code for rows in self.papers.values() for row in rows if row.values)


def digest_of(claim: Claim, seeds: Sequence[int]) -> str:
    """Digest of everything that determines a row's figures."""
    declared = {
        "seeds": list(seeds),
        "measure": claim.measure.name if claim.measure is not None else None,
        "mechanism": claim.mechanism.name if claim.mechanism is not None else None,
        "runs": [comparable(run) for run in claim.runs],
        "beside": {name: [comparable(run) for run in runs] for name, runs in claim.beside},
    }
    return hashlib.sha256(msgspec.json.encode(declared, order="sorted")).hexdigest()[:12]


def comparable(run: Run) -> dict[str, Any]:
    """A run as plain values, without names and texts: equal for equal runs."""
    scenario = find(run.scenario)
    plain: dict[str, Any] = _without_defaults(scenario)
    for name in (*TEXTS, "name", "policies", "baseline", "reassigning"):
        plain.pop(name, None)
    plain["spec"].pop("name", None)
    reassigned = scenario.reassigning.get(run.policy)
    return {
        "scenario": plain,
        "policy": _without_defaults(chosen(scenario, run.policy)),
        "reassigning": _without_defaults(reassigned) if reassigned is not None else None,
        "to_target": run.to_target,
    }


def row_of(finding: Finding, seeds: Sequence[int], code: str = "") -> StoredRow:
    """The row to store; ``code``: a digest of the code that measured it."""
    return StoredRow(
        digest=digest_of(finding.claim, seeds),
        code=code,
        statement=finding.claim.statement,
        values=[_rounded(value) for value in finding.values],
        acted=finding.acted,
        beside={name: [_rounded(value) for value in values] for name, values in finding.beside},
    )


def finding_of(claim: Claim, row: StoredRow) -> Finding:
    """The finding that ``row_of`` stored."""
    return Finding(
        claim=claim,
        values=tuple(row.values),
        acted=row.acted,
        beside=tuple((name, tuple(row.beside[name])) for name, _ in claim.beside),
    )


def is_current(claim: Claim, row: StoredRow, seeds: Sequence[int]) -> bool:
    """Whether the row was measured as it is declared now."""
    return row.digest == digest_of(claim, seeds)


def sample_of(claims: Mapping[str, Sequence[Claim]], stored: Stored, code: str) -> list[tuple[str, int, int]]:
    """A tenth of the rows, each with one of its seeds: paper, row from 1 on, and seed.

    Drawn by the digest of the code, so that each change draws others. Includes one of the rows that take long.
    """
    seeds = stored.range
    per_run = _cost_of_a_run(claims, stored)
    cheap: list[tuple[int, str, int]] = []
    dear: list[tuple[int, str, int]] = []
    for paper, rows in claims.items():
        for number, claim in enumerate(rows, start=1):
            if claim.measure is None:
                continue
            cost_s = sum(per_run.get(run.scenario, 0.0) for run in {*claim.runs})
            drawn = int(hashlib.sha256(f"{code} {digest_of(claim, seeds)}".encode()).hexdigest(), 16)
            (cheap if cost_s <= DEAR_S else dear).append((drawn, paper, number))
    count = -(-sum(len(rows) for rows in claims.values()) // SAMPLED)
    chosen = sorted(dear)[:1]
    chosen += sorted(cheap)[: count - len(chosen)]
    return [(paper, number, seeds[drawn % len(seeds)]) for drawn, paper, number in chosen]


def is_close(stored: float | None, found: float | None) -> bool:
    """Whether two figures are equal up to rounding."""
    if stored is None or found is None:
        return stored is found
    return abs(stored - found) <= CLOSE * max(1e-3, abs(stored))


def _cost_of_a_run(claims: Mapping[str, Sequence[Claim]], stored: Stored) -> dict[str, float]:
    runs = {run for rows in claims.values() for claim in rows for run in claim.runs}
    runs |= {run for rows in claims.values() for claim in rows for _, those in claim.beside for run in those}
    counted: dict[str, int] = {}
    for run in runs:
        counted[run.scenario] = counted.get(run.scenario, 0) + 1
    return {name: stored.cost_s.get(name, 0.0) / (counted[name] * stored.seeds) for name in counted}


def _rounded(value: float | None) -> float | None:
    return float(f"{value:.{DIGITS}g}") if value is not None else None


def _without_defaults(part: object) -> Any:
    """Plain values of a struct without fields that have their default, so that new fields do not change digests."""
    if isinstance(part, msgspec.Struct):
        found: dict[str, Any] = {"": type(part).__name__}
        for field in msgspec.structs.fields(part):
            value = getattr(part, field.name)
            default = field.default
            if default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
                default = field.default_factory()
            if default is msgspec.NODEFAULT or value != default:
                found[field.name] = _without_defaults(value)
        return found
    if isinstance(part, Mapping):
        return {str(key): _without_defaults(value) for key, value in part.items()}
    if isinstance(part, list | tuple):
        return [_without_defaults(value) for value in part]
    return part
