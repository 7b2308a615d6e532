"""Defines which text may be a name or a path, and how other text is shown without its control characters.

Patterns are used with ``search``, as in msgspec and JSON schemas, and exclude characters by lookahead: ``$`` would
allow a newline at the end, and ``.`` stops at one.
"""

import re
from collections.abc import Mapping
from typing import Final

_ACTS: Final = r"\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"
"""C0 and C1 controls, line separators, and bidirectional controls."""

PLAIN: Final = rf"^(?![\s\S]*[{_ACTS}])"
"""One line of text without invisible characters."""

SEGMENT: Final = rf"^(?!\.{{1,2}}(?![\s\S]))(?![\s\S]*[/{_ACTS}])"
"""The name of a file or folder, or the beginning of one; may be empty."""

RELATIVE_PATH: Final = rf"^(?!/)(?!(?:[^/]*/)*\.{{1,2}}(?![^/]))(?![\s\S]*[{_ACTS}])"
"""A relative path without ``.`` and ``..`` that does not begin with ``/``."""

NO_NUL: Final = r"^(?![\s\S]*\x00)"
"""Text that every database can store: PostgreSQL does not store NUL. (Lone surrogates are invalid UTF-8.)"""

IN_WORDS: Final[Mapping[str, str]] = {
    NO_NUL: "text without NULs",
    PLAIN: "text on one line without control characters",
    SEGMENT: "the name of one file or folder, without / and control characters",
    RELATIVE_PATH: "a relative path without parts . and .., and without control characters",
}
"""Descriptions for users, instead of the pattern."""

_ACTING: Final = re.compile(f"[{_ACTS}]")
_ACTING_IN_LINES: Final = re.compile(f"(?![\\n\\t])[{_ACTS}]")


def is_plain(text: str) -> bool:
    """Whether the text can be a name."""
    return _ACTING.search(text) is None


def without_acting(text: str) -> str:
    """The text with a replacement character for each character that is not allowed in a name."""
    return _ACTING.sub("\N{REPLACEMENT CHARACTER}", text)


def printable(text: str) -> str:
    """The text for a terminal: control characters are escaped as ``\\x1b``; newlines and tabs stay."""
    return _ACTING_IN_LINES.sub(lambda found: ascii(found[0])[1:-1], text)
