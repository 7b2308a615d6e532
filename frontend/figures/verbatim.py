"""Text in figures is text: Plotly would read ``<a href=...>`` as a link, ``&lt;`` as an entity, ``%{x}`` as a template.

After the character that starts one of these an invisible one is inserted, so that it starts nothing, and pictures,
tables and files show the same. Every figure passes through ``verbatim`` just before it is sent; a name that is written
into a template passes through ``untouched`` before, and lines are joined by ``LINE``.
"""

import re
from typing import Any, Final

JOINER: Final = "\u2060"
"""Has no width, and allows no line break."""

LINE: Final = "\x1e"
"""Becomes a line break; no other character does."""

EXTRA: Final = "<extra></extra>"
"""Ends a template, and suppresses the second box."""

_BEGINS: Final = re.compile(f"[<&](?!{JOINER})")
_FILLS: Final = re.compile(f"%(?={{)(?!{JOINER})")

TEMPLATES: Final = frozenset({"hovertemplate", "texttemplate"})
UNREAD: Final = frozenset({"meta"})
"""Keys that Plotly passes through, and the page shows as text."""


def untouched(text: str) -> str:
    """The text so that Plotly shows it unchanged in any position."""
    return _FILLS.sub(f"%{JOINER}", _inert(text))


def verbatim(figure: dict[str, Any]) -> dict[str, Any]:
    """The figure with markup only at the end of templates and between lines."""
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
