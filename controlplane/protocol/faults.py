"""What msgspec says of a value that does not fit its type, taken apart: where, and what would fit."""

import re
from typing import NamedTuple

import msgspec

_SENTENCE = re.compile(r"(?P<expected>.*?)(?: - at `(?:key` in `)?\$\.?(?P<field>.*)`)?", re.DOTALL)
"""``Expected `int` >= 1 - at `$.workers```, ``... - at `key` in `$.labels```; of the value itself without a place."""


class Fault(NamedTuple):
    """The first thing that does not fit."""

    field: str
    """``groups[0].machine.slowness``; empty: the value as a whole."""
    expected: str


def fault_of(error: msgspec.ValidationError) -> Fault:
    """The fault that the error is about."""
    found = _SENTENCE.fullmatch(str(error))
    assert found is not None, "the pattern takes any text"
    return Fault(found["field"] or "", found["expected"].removeprefix("Expected "))
