"""``.venv/bin/python docs/make_glossary.py``: writes docs/glossary.md from frontend/glossary.py."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from frontend.glossary import QUESTIONS, TERMS, Term, policies  # noqa: E402

HEAD = """\
# Glossary

Made by `.venv/bin/python docs/make_glossary.py` from `frontend/glossary.py`; a test compares the two. The
dashboard shows it at `/glossary/`, and terms on its pages link there. The column *paper* gives sections of the papers
that [rulings.md](rulings.md) lists.
"""


def page() -> str:
    """The whole of docs/glossary.md."""
    parts = [HEAD, *_table("Terms", "", TERMS)]
    for question, terms in policies().items():
        parts += _table(f"Policies: {question}", QUESTIONS[question], terms)
    return "\n".join(parts)


def _table(title: str, sentence: str, terms: Sequence[Term]) -> Iterator[str]:
    yield f"## {title}\n"
    if sentence:
        yield f"{sentence}\n"
    yield "| term | meaning | paper |\n|---|---|---|"
    for term in terms:
        yield f"| {term.name} | {term.meaning} | {term.paper} |"
    yield ""


if __name__ == "__main__":
    (HERE / "glossary.md").write_text(page())
