"""Cleans external text (output of a process, error messages, driver names) for messages.

A message with a NUL, a lone surrogate or too long a text is rejected by its receiver, so external text is cleaned
before it is sent.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
from msgspec.inspect import DictType, ListType, Metadata, StrType, StructType, Type, UnionType, VarTupleType, type_info

from controlplane.protocol.base import MAX_TEXT
from controlplane.protocol.text import PLAIN, without_acting

CUT: Final = " [cut short]"

Message = TypeVar("Message", bound=msgspec.Struct)
Clean = Callable[[Any], Any]
Plan = tuple[tuple[str, Clean], ...]

_plans: dict[type[Any], Plan] = {}


def clean_text(text: str, limit: int = MAX_TEXT) -> str:
    """The text without NULs and lone surrogates, cut to ``limit`` characters."""
    if "\0" in text or not text.isascii():
        text = text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
    if len(text) <= limit:
        return text
    return f"{text[: limit - len(CUT)]}{CUT}" if limit > len(CUT) else text[:limit]


def cleaned(message: Message) -> Message:
    """The message with every text cleaned; the same object if nothing changed."""
    found: Message = _clean_struct(message)
    return found


def _clean_struct(value: Any) -> Any:
    changes = {}
    for name, clean in _plan(type(value)):
        before = getattr(value, name)
        if (after := clean(before)) != before:
            changes[name] = after
    return msgspec.structs.replace(value, **changes) if changes else value


def _plan(kind: type[Any]) -> Plan:
    """The fields of a message type that may contain text, and how each is cleaned; computed once."""
    if (known := _plans.get(kind)) is None:
        found = type_info(kind)
        assert isinstance(found, StructType)
        cleans = ((each.name, _clean_of(each.type)) for each in found.fields)
        known = _plans[kind] = tuple((name, clean) for name, clean in cleans if clean is not None)
    return known


def _clean_of(kind: Type) -> Clean | None:
    match kind:
        case StrType(max_length=limit, pattern=pattern):
            most = MAX_TEXT if limit is None else limit
            if pattern == PLAIN:
                return lambda text: without_acting(clean_text(text, most))
            return lambda text: clean_text(text, most)
        case StructType(cls=cls):
            return _clean_struct if _plan(cls) else None
        case ListType(item_type=item) | VarTupleType(item_type=item):
            each = _clean_of(item)
            return each and (lambda values: type(values)(map(each, values)))
        case DictType(key_type=key, value_type=value):
            of_key, of_value = _clean_of(key) or _as_is, _clean_of(value) or _as_is
            if of_key is of_value is _as_is:
                return None
            return lambda values: {of_key(key): of_value(value) for key, value in values.items()}
        case Metadata(type=inner):
            return _clean_of(inner)
        case UnionType(types=types):
            return _clean_of_any([clean for each in types if (clean := _clean_of(each))])
    return None


def _clean_of_any(cleans: list[Clean]) -> Clean | None:
    """Of optional text, or of one of several structs."""
    if not cleans:
        return None
    return lambda value: value if value is None else cleans[0](value)


def _as_is(value: Any) -> Any:
    return value
