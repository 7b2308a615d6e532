"""Escapes text in figures: Plotly would read ``<a href=...>`` as a link, ``&lt;`` as an entity, ``%{x}`` as a template.

An invisible character is inserted after the character that starts one of these, so that pictures, tables and files show
the same text. Every figure passes through ``verbatim`` just before it is sent; names that are inserted into a template
pass through ``untouched`` first, and lines are joined by ``LINE``.
"""

import re
from typing import Any, Final

JOINER: Final = "\u2060"
"""Word joiner: has no width and prevents line breaks."""

LINE: Final = "\x1e"
"""Becomes a line break; no other character does."""

EXTRA: Final = "<extra></extra>"
"""Ends a template and suppresses the second hover box."""

_BEGINS: Final = re.compile(f"[<&](?!{JOINER})")
_FILLS: Final = re.compile(f"%(?={{)(?!{JOINER})")

TEMPLATES: Final = frozenset({"hovertemplate", "texttemplate"})
UNREAD: Final = frozenset({"meta"})
"""Keys that Plotly ignores and the page shows as text."""


def untouched(text: str) -> str:
    """Escape the text so that Plotly shows it unchanged."""
    return _FILLS.sub(f"%{JOINER}", _inert(text))


def verbatim(figure: dict[str, Any]) -> dict[str, Any]:
    """Escape all texts of a figure; only template ends and line breaks stay markup."""
    return {key: _of(key, value) for key, value in figure.items()}


def _of(key: str, value: Any) -> Any:
    if isinstance(value, str):
        return _text(key, value)
    if isinstance(value, dict):
        return {name: each if name in UNREAD else _of(name, each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_of(key, each) for each in value]
    return value


def _text(key: str, text: str) -> str:
    if key in TEMPLATES:
        return _inert(text.removesuffix(EXTRA)) + (EXTRA if text.endswith(EXTRA) else "")
    return _inert(text).replace(LINE, "<br>")


def _inert(text: str) -> str:
    return _BEGINS.sub(lambda found: found[0] + JOINER, text)
