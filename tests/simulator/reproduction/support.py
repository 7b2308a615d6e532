"""Headlines by how they begin, and runs that several tests look at."""

from functools import cache
from pathlib import Path

from controlplane.simulator.reproduction.claims import Claim, Finding
from controlplane.simulator.reproduction.papers import PAPERS
from controlplane.simulator.reproduction.runs import play_run
from controlplane.simulator.reproduction.stored import Stored, finding_of
from controlplane.telemetry.reproducing import read_stored

DOCS = Path(__file__).parents[3] / "docs"

played = cache(play_run)
"""By run and seed."""


def claim_of(paper: str, beginning: str) -> Claim:
    """The headline that begins so."""
    return next(claim for claim in PAPERS[paper][1] if claim.statement.startswith(beginning))


@cache
def document() -> str:
    """What is stored."""
    return (DOCS / "reproduction.md").read_text()


@cache
def results() -> Stored:
    """What it was made from."""
    return read_stored(DOCS / "reproduction.json")


@cache
def findings() -> dict[str, list[Finding]]:
    """By paper, of all rows."""
    return {
        paper: [finding_of(claim, row) for claim, row in zip(claims, results().papers[paper], strict=True)]
        for paper, (_, claims) in PAPERS.items()
    }
