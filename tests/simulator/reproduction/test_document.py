"""The document that comes of it, and the command that writes it."""

import io
import json
import re
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from controlplane.simulator.reproduction.claims import find, runs_of
from controlplane.simulator.reproduction.document import BASES, VERDICTS, counted, document
from controlplane.simulator.reproduction.papers import PAPERS
from controlplane.simulator.reproduction.reasons import REASONS, rows_in
from controlplane.simulator.reproduction.stored import Stored, is_close, is_current, row_of
from controlplane.simulator.reproduction.verdicts import Verdict
from controlplane.telemetry.reproducing import read_stored, write_stored
from tests.simulator.reproduction.support import claim_of, findings, played, results
from tests.simulator.reproduction.support import document as stored_document

ROOT = Path(__file__).parents[3]


def test_the_document_has_figure_spread_verdict_and_note_of_every_headline() -> None:
    claims = [claim_of("psp", "ASP makes 200"), claim_of("psp", "pBSP makes about 85")]
    rows = dict(enumerate([find(claim, range(2), played) for claim in claims], start=1))
    text = document({"psp": ("PSP", rows)}, Stored(first_seed=0, seeds=2, papers={}, cost_s={"psp-32": 3.0}, runs=6))
    assert "| 1 | Fig. 10a | ASP makes 200 updates of each worker, BSP 80 | calibrated | 2.50 |" in text
    assert "**reproduced**" in text
    assert "pbsp-held" in text
    assert "- 1: 6 of 32 workers twice as slow" in text
    assert "| `psp-32` | Progress of 32 workers in 400 s | 100.0% |" in text
    assert "| PSP | 1 |" in text  # of which only one is predicted


@pytest.mark.parametrize("paper", PAPERS)
def test_the_stored_rows_were_measured_as_they_are_declared(paper: str) -> None:
    """Else: manage.py reproduce all --changed."""
    claims, rows = PAPERS[paper][1], results().papers[paper]
    outdated = [
        claim.statement for claim, row in zip(claims, rows, strict=True) if not is_current(claim, row, results().range)
    ]
    assert not outdated
    assert results().seeds >= 8


def test_the_stored_document_is_what_its_results_and_the_code_make() -> None:
    papers = {paper: (title, dict(enumerate(findings()[paper], start=1))) for paper, (title, _) in PAPERS.items()}
    assert stored_document() == document(papers, results())
    assert f"`{results().digest}`" in stored_document()


def test_a_tenth_of_the_rows_comes_out_of_this_code_as_it_is_stored() -> None:
    out = io.StringIO()
    call_command("reproduce", sample=True, processes=1, json=True, stdout=out, stderr=io.StringIO())
    rows = int(out.getvalue().split()[0])
    assert re.search(r"(all by this code|rows were measured by other code) \([0-9a-f]{12}\)$", out.getvalue().strip())
    assert rows == -(-sum(len(claims) for _, claims in PAPERS.values()) // 10)


def test_a_sample_that_comes_out_otherwise_is_reported_with_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs a row, one row of which the stored figure is another one, and one that is declared otherwise."""
    claim = claim_of("psp", "ASP makes 200")
    monkeypatch.setattr("controlplane.simulator.reproduction.papers.PAPERS", {"psp": ("PSP", (claim,))})
    monkeypatch.setattr("controlplane.telemetry.management.commands.reproduce.PAPERS", {"psp": ("PSP", (claim,))})
    row = row_of(find(claim, [0], played), range(1))
    path = tmp_path / "document.md"

    def sample(row: object) -> None:
        write_stored(path.with_suffix(".json"), Stored(first_seed=0, seeds=1, papers={"psp": [row]}))  # type: ignore[list-item]
        call_command("reproduce", sample=True, output=path, stdout=io.StringIO(), stderr=io.StringIO())

    sample(row)
    with pytest.raises(CommandError, match=r"1 of 1 rows of the sample differ from .*\n.*psp 1, seed 0: stored 9.00"):
        sample(msgspec.structs.replace(row, values=[9.0]))
    with pytest.raises(CommandError, match=r"of other rows; measure them again with reproduce --changed:\n  psp 1"):
        sample(msgspec.structs.replace(row, digest="another"))


def test_figures_are_the_same_up_to_what_processors_differ_in() -> None:
    assert is_close(1.0, 1.00001)
    assert not is_close(1.0, 1.001)
    assert is_close(None, None)
    assert not is_close(None, 1.0)


def test_its_tables_count_what_its_rows_report_and_the_readme_quotes_predicted_rows_only() -> None:
    text, whole = stored_document(), Counter[Verdict]()
    for paper, (title, _) in PAPERS.items():
        counts = counted(findings()[paper], "predicted")
        assert f"| {title} | {counts.total()} | {' | '.join(str(counts[verdict]) for verdict in VERDICTS)} |" in text
        whole += counts
    every = [found for rows in findings().values() for found in rows]
    for basis in BASES:
        counts = counted(every, basis)
        assert f"| {basis} | {counts.total()} | {' | '.join(str(counts[verdict]) for verdict in VERDICTS)} |" in text
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert f"compares {len(every)} results of the four papers with simulations" in readme
    assert f"{whole.total()} of them are predictions" in readme
    assert (
        f"{whole['reproduced']} of these are reproduced, {whole['partly']} partly, {whole['not']} not, and "
        f"{whole['not measured']} were not measured" in readme
    )


@pytest.mark.parametrize("paper", PAPERS)
def test_every_row_that_is_not_reproduced_has_one_reason(paper: str) -> None:
    rows = dict(enumerate(findings()[paper], start=1))
    stated = Counter(row for reason in REASONS[paper] for row in rows_in(reason.rows))
    assert {row for row, found in rows.items() if found.verdict != "reproduced"} <= {*stated}
    assert {*stated} <= {*rows}
    assert set(stated.values()) == {1}
    text = stored_document()
    for reason in REASONS[paper]:
        if any(rows[row].verdict != "reproduced" for row in rows_in(reason.rows)):
            assert f": *{reason.group}*. {reason.sentence}" in text


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    write_stored(tmp_path / "results.json", results())
    assert read_stored(tmp_path / "results.json") == results()


def test_other_seeds_are_measured_from_the_first_one_on(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = claim_of("psp", "ASP makes 200 updates")
    monkeypatch.setitem(PAPERS, "psp", ("PSP", (claim,)))
    out = io.StringIO()
    call_command("reproduce", "psp", seeds=2, first_seed=7, json=True, stdout=out, stderr=io.StringIO())
    (row,) = json.loads(out.getvalue())["psp"]
    measured = [claim.measure([played(run, seed) for run in claim.runs]) for seed in (7, 8)]
    assert row["values"] == pytest.approx(measured, rel=1e-5)
    with pytest.raises(CommandError, match="first-seed: found -1, expected 0 or more"):
        call_command("reproduce", "psp", first_seed=-1, stdout=io.StringIO(), stderr=io.StringIO())


def test_only_rows_that_are_declared_otherwise_are_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = claim_of("psp", "ASP makes 200"), claim_of("psp", "pBSP makes about 85")
    path, asked = tmp_path / "document.md", []
    rows = [row_of(find(claim, [0], played), range(1)) for claim in claims]
    rows[1] = msgspec.structs.replace(rows[1], digest="another")
    write_stored(path.with_suffix(".json"), Stored(first_seed=0, seeds=1, papers={"psp": rows}))
    monkeypatch.setattr("controlplane.simulator.reproduction.papers.PAPERS", {"psp": ("PSP", claims)})

    def play_all(keys, *_: object, **__: object):  # type: ignore[no-untyped-def]
        asked.extend(run for run, _ in keys)
        return {key: played(*key) for key in keys}

    monkeypatch.setattr("controlplane.telemetry.management.commands.reproduce.play_all", play_all)
    call_command("reproduce", changed=True, output=path, stdout=io.StringIO(), stderr=io.StringIO())
    assert set(asked) == set(runs_of([claims[1]]))
    stored = read_stored(path.with_suffix(".json"))
    assert [is_current(claim, row, range(1)) for claim, row in zip(claims, stored.papers["psp"], strict=True)] == [
        True
    ] * 2


def test_rows_of_a_paper_are_measured_by_themselves() -> None:
    out = io.StringIO()
    call_command("reproduce", "lb-bsp", rows="11, 13-13", seeds=1, stdout=out, stderr=io.StringIO())
    assert re.findall(r"^\| (\d+) \|", out.getvalue(), flags=re.MULTILINE) == ["11", "13"]
    assert "`lb-bsp-cluster-a`" not in out.getvalue()


@pytest.mark.parametrize("rows", ["0", "40", "3-2", "1-", "x", "1-2-3", "²", "1,,2", "9" * 5])
def test_rows_that_a_paper_does_not_have_are_refused(rows: str) -> None:
    with pytest.raises(CommandError, match=r"rows: found .*, expected (rows from 1 to 39|numbers and ranges)"):
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
