"""What the documents say is so."""

import re
from pathlib import Path

import pytest

from docs.make_states import page
from tests.architecture.sources import ROOT

DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_state_diagrams_are_those_of_the_tables() -> None:
    assert (ROOT / "docs" / "states.md").read_text() == page(), "run: python docs/make_states.py"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text())
    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_that_are_named_exist(document: Path) -> None:
    named = re.findall(r"`((?:controlplane|workers|frontend|tests|docs|deploy)/[\w./-]+)`", document.read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_decisions_are_numbered_without_gaps_and_half_a_page_long() -> None:
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [path.name[:4] for path in decisions] == [f"{number:04}" for number in range(1, len(decisions) + 1)]
    for path in decisions:
        text = path.read_text()
        assert all(f"\n## {part}\n" in text for part in ("Context", "Choice", "Price")), path.name
        assert len(text.split()) <= 300, path.name


def test_make_targets_in_the_readme_exist() -> None:
    targets = set(re.findall(r"(?:`|^    )make (\w+)", (ROOT / "README.md").read_text(), flags=re.MULTILINE))
    rules = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert targets <= rules
