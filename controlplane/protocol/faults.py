"""Parses msgspec's validation errors: the place of the value, and what is expected there."""

import re
from typing import NamedTuple

import msgspec
from msgspec.inspect import ListType, NoneType, StructType, Type, UnionType, type_info

from controlplane.protocol.text import IN_WORDS

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
    return Fault(found["field"] or "", _in_words(found["expected"].removeprefix("Expected ")))


def _in_words(expected: str) -> str:
    """A regular expression does not help users."""
    return next((words for pattern, words in IN_WORDS.items() if repr(pattern) in expected), expected)


def fields_at(kind: type[msgspec.Struct], field: str) -> list[str]:
    """The names that a part of such a struct may have: of the one at ``field``, as a fault has it."""
    found = type_info(kind)
    for key in re.findall(r"\w+", field):
        found = _within(found, key)
    return [each.encode_name for each in found.fields] if isinstance(found, StructType) else []


def _within(kind: Type, key: str) -> Type:
    found = kind.item_type if isinstance(kind, ListType) else kind
    if isinstance(kind, StructType):
        found = next(each.type for each in kind.fields if each.encode_name == key)
    if isinstance(found, UnionType):
        found = next(each for each in found.types if not isinstance(each, NoneType))
    return found
