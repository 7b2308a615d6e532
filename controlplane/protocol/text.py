"""Which text may be a name or a path, and how any other text is shown where control characters would act.

The patterns are searched for, as msgspec and JSON schemas do, and forbid by looking ahead: ``$`` would let a newline
through at the end, and ``.`` stops at one.
"""

import re
from collections.abc import Mapping
from typing import Final

_ACTS: Final = r"\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"
"""C0 and C1 controls, separators of lines, and what turns the direction of writing."""

PLAIN: Final = rf"^(?![\s\S]*[{_ACTS}])"
"""Text on one line that says nothing but what is seen."""

SEGMENT: Final = rf"^(?!\.{{1,2}}(?![\s\S]))(?![\s\S]*[/{_ACTS}])"
"""The name of one file or folder, or the beginning of one; may be empty."""

RELATIVE_PATH: Final = rf"^(?!/)(?!(?:[^/]*/)*\.{{1,2}}(?![^/]))(?![\s\S]*[{_ACTS}])"
"""A path that stays below where it begins: no part of it is ``.`` or ``..``, and it does not begin with ``/``."""

NO_NUL: Final = r"^(?![\s\S]*\x00)"
"""Any text that every database keeps: PostgreSQL has none with a NUL. (Lone surrogates are refused as no UTF-8.)"""

IN_WORDS: Final[Mapping[str, str]] = {
    NO_NUL: "text without NULs",
    PLAIN: "text on one line without control characters",
    SEGMENT: "the name of one file or folder, without / and control characters",
    RELATIVE_PATH: "a relative path without parts . and .., and without control characters",
}
"""For people, who are not shown a pattern."""

_ACTING: Final = re.compile(f"[{_ACTS}]")
_ACTING_IN_LINES: Final = re.compile(f"(?![\\n\\t])[{_ACTS}]")


def is_plain(text: str) -> bool:
    """Whether the text can be a name."""
    return _ACTING.search(text) is None


def without_acting(text: str) -> str:
    """The text with a replacement character for each that would keep it from being a name."""
    return _ACTING.sub("\N{REPLACEMENT CHARACTER}", text)


def printable(text: str) -> str:
    """The text for a terminal: what would act on it is written out, as ``\\x1b``; newlines and tabs stay."""
    return _ACTING_IN_LINES.sub(lambda found: ascii(found[0])[1:-1], text)
