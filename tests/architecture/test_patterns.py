"""Patterns for what people and machines say match the whole of it: ``$`` lets a newline through, ``match`` anything."""

import ast
import re
from collections.abc import Iterator

from tests.architecture.sources import PACKAGES, ROOT, parsed

SOURCES = sorted(path for room in PACKAGES for path in (ROOT / room).glob("**/*.py"))


def matched_at_the_begin(tree: ast.AST) -> Iterator[int]:
    """Lines that call ``re.match``, which says nothing of the end."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "match"
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "re"
        ):
            yield node.lineno


def ended_by_a_dollar(tree: ast.AST) -> Iterator[int]:
    """Lines with a pattern, given as ``pattern=`` or compiled, that ends with ``$``."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        compiled = isinstance(node.func, ast.Attribute) and node.func.attr in {"compile", "search", "match"}
        given = [word.value for word in node.keywords if word.arg == "pattern"]
        for text in [*given, *(node.args[:1] if compiled else [])]:
            if isinstance(text, ast.Constant) and isinstance(text.value, str) and text.value.endswith("$"):
                yield node.lineno


def test_no_pattern_leaves_the_end_open() -> None:
    open_ended = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in SOURCES
        for line in (*matched_at_the_begin(parsed(path)), *ended_by_a_dollar(parsed(path)))
    ]
    assert open_ended == []


def test_what_these_patterns_would_let_through() -> None:
    assert re.search("^[a-z]+$", "a\n")
    assert re.fullmatch("[a-z]+", "a\n") is None
