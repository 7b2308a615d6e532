"""Each YAML example of a spec in the documents is one: with the required fields it is accepted as it stands there."""

import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml

from controlplane.protocol.spec import JobSpec, parse_spec

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]

REQUIRED = {
    "name": "digits",
    "workload": "softmax-regression",
    "workers": 4,
    "batch_size": 64,
    "stop": {"iterations": 100},
}

KEY = re.compile(r" {4}[a-z_]+:")


def blocks(page: Path) -> list[str]:
    """The paragraphs of a page that begin with an indented key."""
    return [each for each in re.split(r"\n\s*\n", page.read_text()) if KEY.match(each)]


def examples() -> list[Any]:
    """Parts of specs by page."""
    found = []
    for page in PAGES:
        for number, block in enumerate(blocks(page)):
            document = yaml.safe_load(dedent(block)) if _is_indented(block) else None
            if isinstance(document, dict) and document.keys() <= set(JobSpec.__struct_fields__):
                found.append(pytest.param(document, id=f"{page.stem}-{number}"))
    return found


def _is_indented(block: str) -> bool:
    return all(line.startswith("    ") for line in block.splitlines())


@pytest.mark.parametrize("document", examples())
def test_an_example_of_the_documents_is_accepted(document: dict[str, Any]) -> None:
    parse_spec(REQUIRED | document)


def test_the_examples_of_the_documents_are_found() -> None:
    assert {each.id.partition("-")[0] for each in examples()} >= {"workloads", "operating"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_line_of_an_indented_example_is_indented(page: Path) -> None:
    ragged = [block for block in blocks(page) if not _is_indented(block)]
    assert ragged == [], "a page shows such a line as text, and the example without it"
