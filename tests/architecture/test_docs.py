"""What the documents say is so."""

import re
from pathlib import Path

import pytest

from benchmarks.command import MEASURED, STANDALONE
from controlplane.policies import registry
from controlplane.protocol.spec import CHOICES
from docs import make_glossary
from docs.make_states import page
from tests.architecture.sources import ROOT
from tests.architecture.test_floors import FLOORS

DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_state_diagrams_are_those_of_the_tables() -> None:
    assert (ROOT / "docs" / "states.md").read_text() == page(), "run: .venv/bin/python docs/make_states.py"


def test_the_glossary_is_that_of_the_pages() -> None:
    assert (ROOT / "docs" / "glossary.md").read_text() == make_glossary.page(), (
        "run: .venv/bin/python docs/make_glossary.py"
    )


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text())
    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_that_are_named_exist(document: Path) -> None:
    named = re.findall(
        r"`((?:controlplane|workers|frontend|paceline|examples|benchmarks|tests|docs|deploy)/[\w./-]+)`",
        document.read_text(),
    )
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_decision_has_a_number_of_its_own_and_is_half_a_page_long() -> None:
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    numbers = [int(path.name[:4]) for path in decisions]
    assert sorted(set(numbers)) == numbers
    for path in decisions:
        text = path.read_text()
        assert all(f"\n## {part}\n" in text for part in ("Context", "Choice", "Price")), path.name
        assert len(text.split()) <= 300, path.name


def commands() -> set[str]:
    found = [path for room in ("controlplane", "frontend") for path in (ROOT / room).glob("**/commands/[a-z]*.py")]
    return {path.stem for path in found}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_that_are_named_exist(document: Path) -> None:
    named = set(re.findall(r"manage\.py (\w+)", document.read_text()))
    assert named <= commands()


def test_the_table_of_commands_has_each_of_them() -> None:
    table = (ROOT / "docs" / "operating.md").read_text().partition("\n## Commands\n")[2].partition("\n## ")[0]
    assert {name for name in commands() if not re.search(rf"`(?:[^`]* )?{name}\b", table)} == set()


def test_the_table_of_commands_has_each_benchmark() -> None:
    table = (ROOT / "docs" / "operating.md").read_text().partition("\n## Commands\n")[2].partition("\n## ")[0]
    listed = {name for row in table.splitlines() if row.startswith("| `bench") for name in re.findall(r"[\w-]+", row)}
    assert {*MEASURED, *STANDALONE} <= listed


def test_rulings_that_are_cited_exist() -> None:
    there = set(re.findall(r"^(\d+)\. ", (ROOT / "docs" / "rulings.md").read_text(), flags=re.MULTILINE))
    sources = [
        path for room in ("controlplane", "workers", "benchmarks", "docs") for path in (ROOT / room).rglob("*.[pm][yd]")
    ]
    cited = {number for path in sources for number in re.findall(r"\(ruling (\d+)", path.read_text())}
    assert cited
    assert cited <= there


def test_the_readme_names_every_policy_that_a_job_can_choose() -> None:
    table = (ROOT / "README.md").read_text().partition("\n## The four choices\n")[2].partition("\n## ")[0]
    rows = {
        row.split("|")[1].strip(): re.findall(r"`([\w-]+)`", row) for row in table.splitlines() if row.startswith("| ")
    }
    assert {question: sorted(rows[question]) for question in CHOICES} == {
        name: registry.names(name) for name in CHOICES
    }


def test_the_design_has_a_row_for_each_floor() -> None:
    table = (ROOT / "docs" / "design.md").read_text().partition("\n## Packages\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[2] for line in table.splitlines() if line.startswith("| ")][1:]
    named = [sorted(re.findall(r"`([\w/]+)(?:\.py)?`", row)) for row in rows]
    assert named == [sorted(name.replace(".", "/") for name in floor) for floor in reversed(FLOORS)]


def test_make_targets_in_the_readme_exist() -> None:
    targets = set(re.findall(r"(?:`|^    )make (\w+)", (ROOT / "README.md").read_text(), flags=re.MULTILINE))
    rules = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert targets <= rules


def test_tests_that_security_names_for_attacks_exist() -> None:
    named = re.findall(r"`((?:tests|benchmarks)/[\w/.]+)`", (ROOT / "SECURITY.md").read_text())
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_what_saturates_first_follows_from_the_costs_beside_it() -> None:
    text = (ROOT / "docs" / "scaling.md").read_text()
    costs = {name: int(cost) for name, cost in re.findall(r"^\| (\w+) \| (\d+) µs \|", text, re.MULTILINE)}
    assert f"`k * u / {sum(costs.values())} µs`" in text

    def carried(processes: float, cost: int) -> int:
        """Messages per second, to a hundred below."""
        return int(processes * 0.7 / (cost * 1e-6)) // 100 * 100

    for name in ("decisions", "web", "history", "Redis"):
        assert f"| {name} | {costs[name]} µs | {carried(1, costs[name]):,} |" in text
    low = re.findall(r"^\| (.+?) \| ([\d,]+) µs at a low rate \| ([\d,]+) \|$", text, re.MULTILINE)
    assert len(low) == 5
    for name, cost, limit in low:
        cores = 2 if name.startswith("2 cores") else 1
        assert limit == f"{carried(cores, int(cost.replace(',', ''))):,}", name
    rows = re.findall(r"^\| (\d+) cores, (.+?) \| (.+?) \| ([\d,]+) \| \4 \|$", text, re.MULTILINE)
    assert len(rows) == 3
    for cores, installed, first, limit in rows:
        several = 2 if "2 web, 2 decisions" in installed else 1
        limits = {
            "the cores": carried(int(cores), sum(costs.values())),
            "decisions": carried(several, costs["decisions"]),
            "web": carried(several, costs["web"]),
            "history": carried(1, costs["history"]),
            "Redis": carried(1, costs["Redis"]),
        }
        assert (first, limit) == (min(limits, key=lambda each: limits[each]), f"{min(limits.values()):,}")
