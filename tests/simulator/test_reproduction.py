"""The rule of verdicts, and the verdicts that are cheap to look at."""

import io
import json
from functools import cache
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from controlplane.simulator.reproduction.claims import Claim, Finding, Kind, Played, Run, Verdict, find, judge, runs_of
from controlplane.simulator.reproduction.document import CHOSEN, RULE, document
from controlplane.simulator.reproduction.papers import PAPERS
from controlplane.simulator.reproduction.runs import play_run
from controlplane.simulator.scenario import check, chosen
from controlplane.simulator.scenarios import find as find_scenario

played = cache(play_run)
"""By run and seed: several headlines look at the same ones."""


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


def claim_of(paper: str, beginning: str) -> Claim:
    return next(claim for claim in PAPERS[paper][1] if claim.says.startswith(beginning))


@pytest.mark.parametrize(
    ("paper", "beginning", "verdicts"),
    [
        ("lb-bsp", "shares settle at (89, 21, 12, 6)", {"reproduced"}),
        ("lb-bsp", "with a quarter of its bandwidth", {"reproduced"}),
        ("lb-bsp", "scaling batches keeps the accuracy", {"reproduced"}),
        ("lb-bsp", "scaling local steps instead loses", {"reproduced", "partly"}),
        ("psld", "vgg16: PSLD makes training 286 % faster", {"reproduced", "partly"}),
        ("psld", "resnet50, 4 slow servers of eight: 3.4 times", {"reproduced", "partly"}),
        ("a-bsp", "physical, lr: A-BSP is 1.82 times", {"reproduced", "partly"}),
        ("psp", "ASP makes 200 updates of each worker", {"reproduced"}),
        ("psp", "pBSP makes about 85 % more updates", {"not", "partly"}),
    ],
)
def test_verdicts_that_are_cheap(paper: str, beginning: str, verdicts: set[str]) -> None:
    assert find(claim_of(paper, beginning), 1, played).verdict in verdicts


def test_a_headline_that_no_seed_reaches_is_not_reproduced() -> None:
    claim = claim_of("psp", "ASP makes 200 updates")
    never = Claim(
        where="nowhere", says="nothing", figure=2.0, runs=claim.runs, measure=lambda _: None, note="for a test"
    )
    found = find(never, 2, played)
    assert (found.values, found.missing, found.mean, found.verdict) == ((), 2, None, "not")


def test_the_document_has_figure_spread_verdict_and_note_of_every_headline() -> None:
    claims = [claim_of("psp", "ASP makes 200"), claim_of("psp", "pBSP makes about 85")]
    findings: list[Finding] = [find(claim, 2, played) for claim in claims]
    runs: dict[tuple[Run, int], Played] = {
        (run, seed): played(run, seed) for run in runs_of(claims) for seed in range(2)
    }
    text = document({"psp": ("PSP", findings)}, seeds=2, played=runs)
    assert "| 1 | Fig. 10a | ASP makes 200 updates of each worker, BSP 80 | 2.50 |" in text
    assert "**reproduced**" in text
    assert "pbsp-held" in text
    assert "- 1-2: 2 s for an iteration of a usual worker" in text
    assert "| `psp-32` | Progress of 32 workers in 400 s | " in text


def test_the_stored_document_says_of_itself_what_a_new_one_would() -> None:
    stored = (Path(__file__).parents[2] / "docs" / "reproduction.md").read_text()
    assert RULE in stored
    assert CHOSEN in stored


def test_a_paper_that_is_none_is_refused() -> None:
    with pytest.raises(CommandError, match="paper: found 'hogwild', expected one of lb-bsp, psld, a-bsp, psp, or all"):
        call_command("reproduce", "hogwild", stdout=io.StringIO(), stderr=io.StringIO())


def test_runs_that_are_kept_are_not_played_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = claim_of("psp", "ASP makes 200 updates")
    monkeypatch.setitem(PAPERS, "psp", ("PSP", (claim,)))
    kept = tmp_path / "runs"

    def reproduce() -> dict[str, list[dict[str, object]]]:
        out = io.StringIO()
        call_command(
            "reproduce", "psp", "--seeds", "1", "--keep", str(kept), "--json", stdout=out, stderr=io.StringIO()
        )
        found: dict[str, list[dict[str, object]]] = json.loads(out.getvalue())
        return found

    first = reproduce()
    lines = kept.read_bytes()
    assert len(lines.splitlines()) == 2
    assert reproduce() == first
    assert kept.read_bytes() == lines
