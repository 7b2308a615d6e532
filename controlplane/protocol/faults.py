"""Parses msgspec's validation errors: the place of the value, and what is expected there."""

import re
from typing import Any, NamedTuple

import msgspec
from msgspec.inspect import EnumType, ListType, LiteralType, Metadata, NoneType, StructType, Type, UnionType, type_info

from controlplane.protocol.text import IN_WORDS

_SENTENCE = re.compile(r"(?P<expected>.*?)(?: - at `(?:key` in `)?\$\.?(?P<field>.*)`)?", re.DOTALL)
"""``Expected `int` >= 1 - at `$.workers```, ``... - at `key` in `$.labels```; of the value itself without a place."""


class Fault(NamedTuple):
    """The first invalid value."""

    field: str
    """``groups[0].machine.slowness``; empty: the value as a whole."""
    expected: str


def fault_of(error: msgspec.ValidationError, kind: Any = None) -> Fault:
    """The fault in an error of msgspec; the expected type is used to list the values of an enumeration."""
    found = _SENTENCE.fullmatch(str(error))
    assert found is not None, "the pattern takes any text"
    field, expected = found["field"] or "", found["expected"].removeprefix("Expected ")
    if kind is not None and expected.startswith("Invalid enum value") and (values := values_at(kind, field)):
        return Fault(field, f"one of {', '.join(values)}")
    return Fault(field, _in_words(expected))


def _in_words(expected: str) -> str:
    """Replace a regular expression by a description for users."""
    return next((words for pattern, words in IN_WORDS.items() if repr(pattern) in expected), expected)


def fields_at(kind: type[msgspec.Struct], field: str) -> list[str]:
    """The names that a part of such a struct may have: of the one at ``field``, as a fault has it."""
    found = _type_at(kind, field)
    return [each.encode_name for each in found.fields] if isinstance(found, StructType) else []


def values_at(kind: Any, field: str) -> list[str]:
    """The values of the enumeration or literal at ``field`` of such a type; none where it is something else."""
    found = _type_at(kind, field)
    if isinstance(found, EnumType):
        return [str(each.value) for each in found.cls]
    return [str(each) for each in found.values] if isinstance(found, LiteralType) else []


def _type_at(kind: Any, field: str) -> Type | None:
    found: Type | None = _present(type_info(kind))
    for key in re.findall(r"\w+", field):
        if isinstance(found, StructType):
            found = next((_present(each.type) for each in found.fields if each.encode_name == key), None)
        elif isinstance(found, ListType):
            found = _present(found.item_type)
    return found


def _present(kind: Type) -> Type:
    """The type itself: without a description, and of an optional value the type other than None."""
    while isinstance(kind, Metadata | UnionType):
        if isinstance(kind, Metadata):
            kind = kind.type
        else:
            kind = next(each for each in kind.types if not isinstance(each, NoneType))
    return kind
