"""The document that comes of it, and the command that writes it."""

import io
import json
import re
from collections import Counter
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from controlplane.simulator.reproduction.claims import Finding, Played, Run, find, runs_of
from controlplane.simulator.reproduction.document import CHOSEN, RULE, document, figure
from controlplane.simulator.reproduction.papers import PAPERS
from tests.simulator.reproduction.support import claim_of, played, stored
from tests.simulator.reproduction.support import document as stored_document


def test_the_document_has_figure_spread_verdict_and_note_of_every_headline() -> None:
    claims = [claim_of("psp", "ASP makes 200"), claim_of("psp", "pBSP makes about 85")]
    findings: list[Finding] = [find(claim, 2, played) for claim in claims]
    runs: dict[tuple[Run, int], Played] = {
        (run, seed): played(run, seed) for run in runs_of(claims) for seed in range(2)
    }
    text = document({"psp": ("PSP", dict(enumerate(findings, start=1)))}, seeds=2, played=runs)
    assert "| 1 | Fig. 10a | ASP makes 200 updates of each worker, BSP 80 | 2.50 |" in text
    assert "**reproduced**" in text
    assert "pbsp-held" in text
    assert "- 1: 2 s for an iteration of a usual worker" in text
    assert "| `psp-32` | Progress of 32 workers in 400 s | " in text


def test_the_stored_document_says_of_itself_what_a_new_one_would() -> None:
    text = stored_document()
    assert RULE in text
    assert CHOSEN in text
    assert "--seeds 8" in text
    for _, claims in PAPERS.values():
        for claim in claims:
            assert stored(claim)
            assert f"| {claim.says} | {figure(claim.figure)}" in text
            assert claim.note.strip() in text


@pytest.mark.parametrize(
    ("paper", "headline", "expected"),
    [
        ("lb-bsp", "Inception-V3 on 16 GPUs: 54 % faster", {"reproduced"}),
        ("lb-bsp", "ResNet-32 on 16 GPUs: iterations 37 %", {"reproduced", "partly"}),
        ("lb-bsp", "ResNet-32 without the V100s: 28 % faster", {"reproduced"}),
        ("lb-bsp", "as many updates as BSP", {"reproduced"}),
        ("lb-bsp", "ResNet-32 in Cluster-B: LB-BSP with narx", {"reproduced", "partly"}),
        ("lb-bsp", "Hetero-L3: over 30 % sooner", {"reproduced", "partly"}),
        ("a-bsp", "multi-tenant, lr: A-BSP is 2.36 times", {"reproduced", "partly"}),
        ("a-bsp", "physical, lr: A-BSP without prioritisation", {"reproduced", "partly"}),
        ("psp", "pBSP makes twice the updates", {"not", "partly"}),
    ],
)
def test_verdicts_that_are_dear_are_held_by_what_is_stored(paper: str, headline: str, expected: set[str]) -> None:
    assert stored(claim_of(paper, headline)) in expected


def test_its_table_and_the_readme_count_what_its_rows_say() -> None:
    whole: Counter[str] = Counter()
    for title, claims in PAPERS.values():
        counts = Counter(stored(claim) for claim in claims)
        numbers = [len(claims), counts["reproduced"], counts["partly"], counts["not"]]
        assert f"| {title} | {' | '.join(map(str, numbers))} |" in stored_document()
        whole += counts
    readme = " ".join((Path(__file__).parents[3] / "README.md").read_text().split())
    assert re.search(r"measures (\d+) headlines", readme)[1] == str(whole.total())  # type: ignore[index]
    assert f"lists {whole['reproduced']} as reproduced, {whole['partly']} partly, {whole['not']} not" in readme


def test_rows_of_a_paper_are_measured_by_themselves() -> None:
    out = io.StringIO()
    call_command("reproduce", "lb-bsp", rows="7, 9-9", seeds=1, stdout=out, stderr=io.StringIO())
    assert re.findall(r"^\| (\d+) \|", out.getvalue(), flags=re.MULTILINE) == ["7", "9"]
    assert "`lb-bsp-cluster-a`" not in out.getvalue()


@pytest.mark.parametrize("rows", ["0", "29", "3-2", "1-", "x", "1-2-3", "²", "1,,2", "9" * 5])
def test_rows_that_a_paper_does_not_have_are_refused(rows: str) -> None:
    with pytest.raises(CommandError, match=r"rows: found .*, expected (rows from 1 to 28|numbers and ranges)"):
        call_command("reproduce", "lb-bsp", rows=rows, stdout=io.StringIO(), stderr=io.StringIO())


def test_rows_of_all_papers_are_refused() -> None:
    with pytest.raises(CommandError, match="rows: found rows of all papers, expected one paper"):
        call_command("reproduce", rows="1", stdout=io.StringIO(), stderr=io.StringIO())


def test_a_paper_that_is_none_is_refused() -> None:
    with pytest.raises(CommandError, match="paper: found 'hogwild', expected one of lb-bsp, psld, a-bsp, psp, or all"):
        call_command("reproduce", "hogwild", stdout=io.StringIO(), stderr=io.StringIO())


@pytest.mark.parametrize("option", ["--output", "--keep"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_played(tmp_path: Path, option: str) -> None:
    for path, reason in ((tmp_path, "Is a directory"), (tmp_path / "gone" / "file", "No such file or directory")):
        with pytest.raises(
            CommandError, match=rf"{option[2:]}: {path} cannot be written \({reason}\), expected a file"
        ):
            call_command("reproduce", "all", option, str(path), stdout=io.StringIO(), stderr=io.StringIO())


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
