"""Headlines by how they begin, and runs that several tests look at."""

from functools import cache

from controlplane.simulator.reproduction.claims import Claim, Verdict, find
from controlplane.simulator.reproduction.papers import PAPERS
from controlplane.simulator.reproduction.runs import play_run

played = cache(play_run)
"""By run and seed."""


def claim_of(paper: str, beginning: str) -> Claim:
    """The headline that begins so."""
    return next(claim for claim in PAPERS[paper][1] if claim.says.startswith(beginning))


def verdict(paper: str, beginning: str) -> Verdict:
    """By one seed."""
    return find(claim_of(paper, beginning), 1, played).verdict
