"""Headlines by how they begin, and runs that several tests look at."""

from functools import cache
from pathlib import Path
from typing import get_args

from controlplane.simulator.reproduction.claims import Claim, Verdict, find
from controlplane.simulator.reproduction.papers import PAPERS
from controlplane.simulator.reproduction.runs import play_run

played = cache(play_run)
"""By run and seed."""


def claim_of(paper: str, beginning: str) -> Claim:
    """The headline that begins so."""
    return next(claim for claim in PAPERS[paper][1] if claim.says.startswith(beginning))


def verdicts(paper: str, beginning: str) -> set[Verdict]:
    """By one seed here, and as docs/reproduction.md has it by all of them."""
    claim = claim_of(paper, beginning)
    return {find(claim, 1, played).verdict, stored(claim)}


@cache
def document() -> str:
    """What is stored."""
    return (Path(__file__).parents[3] / "docs" / "reproduction.md").read_text()


def stored(claim: Claim) -> Verdict:
    """The verdict in the stored document."""
    row = next(line for line in document().splitlines() if f"| {claim.where} | {claim.says} |" in line)
    return next(verdict for verdict in get_args(Verdict) if f"**{verdict}**" in row)
