"""The rule of verdicts, and what every headline must have."""

import pytest

from controlplane.simulator.reproduction.claims import Claim, Kind, Verdict, find, judge, runs_of
from controlplane.simulator.reproduction.papers import PAPERS
from controlplane.simulator.scenario import check, chosen
from controlplane.simulator.scenarios import find as find_scenario
from tests.simulator.reproduction.support import claim_of, played


@pytest.mark.parametrize(
    ("kind", "paper", "ours", "verdict"),
    [
        ("effect", 0.5, 0.5, "reproduced"),
        ("effect", 0.5, 0.4, "reproduced"),
        ("effect", 0.5, 0.3, "partly"),
        ("effect", 0.5, 0.8, "partly"),
        ("effect", 0.5, 0.95, "not"),
        ("effect", 0.5, 1.5, "not"),
        ("effect", 2.0, 2.2, "reproduced"),
        ("equal", 1.0, 1.09, "reproduced"),
        ("equal", 1.0, 0.8, "partly"),
        ("equal", 1.0, 1.3, "not"),
        ("difference", -0.2, -0.15, "reproduced"),
        ("difference", -0.2, -0.4, "partly"),
        ("difference", -0.2, 0.1, "not"),
        ("at most", 30.0, 29.0, "reproduced"),
        ("at most", 30.0, 50.0, "partly"),
        ("at most", 30.0, 61.0, "not"),
    ],
)
def test_one_rule_gives_the_verdicts(kind: Kind, paper: float, ours: float, verdict: Verdict) -> None:
    assert judge(kind, paper, ours) == verdict


def test_every_headline_has_runs_that_exist_and_says_why() -> None:
    for _, claims in PAPERS.values():
        for claim in claims:
            assert claim.note.strip(), claim.says
        for run in runs_of(claims):
            scenario = find_scenario(run.scenario)
            check(scenario)
            assert chosen(scenario, run.policy)


def test_a_headline_that_no_seed_reaches_is_not_reproduced() -> None:
    claim = claim_of("psp", "ASP makes 200 updates")
    never = Claim(
        where="nowhere", says="nothing", figure=2.0, runs=claim.runs, measure=lambda _: None, note="for a test"
    )
    found = find(never, 2, played)
    assert (found.values, found.missing, found.mean, found.verdict) == ((), 2, None, "not")
