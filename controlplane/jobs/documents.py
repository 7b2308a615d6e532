"""Checks parsed documents before they are read as specs: only values that JSON, msgpack and both databases can store.

YAML and JSON parsers accept more than that: dates, infinities, integers of any length, NUL characters.
"""

import math
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from controlplane.protocol.spec import SpecError
from controlplane.protocol.text import printable

MAX_DEPTH = 16
MAX_TEXT = 10_000
MAX_VALUES = 200_000
INT64 = range(-(2**63), 2**63)


def check_plain(document: object) -> None:
    """Accept mappings with text keys, lists, text, numbers, booleans and null, within limits.

    Raises:
        SpecError: naming the first field that holds anything else.
    """
    _check(document, "", 0, count(1))


def _check(value: object, field: str, depth: int, seen: Iterator[int]) -> None:
    if next(seen) > MAX_VALUES:
        raise SpecError("", f"more than {MAX_VALUES} values", f"at most {MAX_VALUES} values in all")
    if depth > MAX_DEPTH:
        raise SpecError(field, shown(value), f"at most {MAX_DEPTH} levels of nesting")
    match value:
        case None | bool():
            return
        case int():
            if value not in INT64:
                raise SpecError(field, shown(value), "an integer of at most 64 bits")
        case float():
            if not math.isfinite(value):
                raise SpecError(field, shown(value), "a finite number")
        case str():
            _check_text(value, field)
        case list():
            for index, item in enumerate(value):
                _check(item, f"{field}[{index}]", depth + 1, seen)
        case Mapping():
            for key, item in value.items():
                _check_key(key, field)
                _check(item, f"{field}.{key}".lstrip("."), depth + 1, seen)
        case _:
            expected = "text, a number, true, false, null, a list or a mapping; quote what is meant as text"
            raise SpecError(field, shown(value), expected)


def shown(value: Any, limit: int = 200) -> Any:
    """``value`` as an error message may repeat it: plain, short and valid in any encoding."""
    if value is None or isinstance(value, bool) or (isinstance(value, int) and value in INT64):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, int):
        return f"an integer of {value.bit_length()} bits"
    text = value if isinstance(value, str) else repr(value)
    text = text.encode("utf-8", "backslashreplace").decode()
    text = printable(text)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _check_key(key: object, field: str) -> None:
    if not isinstance(key, str):
        raise SpecError(field, shown(key), "text as the name of every field")
    _check_text(key, field)


def _check_text(text: str, field: str) -> None:
    if len(text) > MAX_TEXT:
        raise SpecError(field, shown(text), f"at most {MAX_TEXT} characters")
    if "\x00" in text:
        raise SpecError(field, shown(text), "text without NUL characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise SpecError(field, shown(text), "text that UTF-8 can carry") from None
