"""Parses the parameters of query strings; an error names the parameter, its value and the allowed values."""

from collections.abc import Collection, Mapping
from typing import Final

Query = Mapping[str, str]

MOST_CHARACTERS: Final = 40
"""Maximum number of characters of the value that an error repeats."""

ID_DIGITS: Final = 17
"""Maximum number of digits: such numbers fit into the database's integers."""


class QueryError(ValueError):
    """An invalid query parameter."""

    def __init__(self, field: str, found: str, expected: str) -> None:
        self.field, self.found, self.expected = field, found[:MOST_CHARACTERS], expected
        super().__init__(f"{field}: found {self.found!r}, expected {expected}")


def readable(query: Query) -> None:
    """Reject text that the database cannot store.

    Raises:
        QueryError: for a NUL character.
    """
    for field, found in query.items():
        if "\x00" in found:
            raise QueryError(field, found, "text without NUL characters")


def one_of(query: Query, field: str, allowed: Collection[str], usual: str | None = None) -> str:
    """One of the allowed values; the default is ``usual``, or the first of them.

    Raises:
        QueryError: for any other value.
    """
    found = query.get(field, next(iter(allowed)) if usual is None else usual)
    if found not in allowed:
        raise QueryError(field, found, f"one of {', '.join(filter(None, allowed))}")
    return found


def whole(query: Query, field: str, least: int, most: int) -> int | None:
    """An integer from ``least`` to ``most``.

    Raises:
        QueryError: for anything else.
    """
    found = query.get(field, "")
    if not found:
        return None
    if not (found.isdecimal() and len(found) <= ID_DIGITS and least <= int(found) <= most):
        raise QueryError(field, found, f"an integer from {least} to {most}")
    return int(found)


def number_of(query: Query, field: str, noun: str) -> int | None:
    """The ID of a ``noun``, such as a job.

    Raises:
        QueryError: for a value that is not an ID.
    """
    found = query.get(field, "")
    if found and not (found.isdecimal() and len(found) <= ID_DIGITS):
        raise QueryError(field, found, f"the ID of a {noun}")
    return int(found) if found else None


def numbers(
    query: Query, field: str, expected: str, *, least: int = 0, most: int, digits: int = ID_DIGITS
) -> list[int]:
    """Numbers separated by commas, each once, in the given order.

    Raises:
        QueryError: with the text ``expected``.
    """
    text = query.get(field, "")
    parts = [part for part in text.split(",") if part]
    fine = all(part.isdecimal() and len(part) <= digits for part in parts)
    found = list(dict.fromkeys(int(part) for part in parts)) if fine else []
    if not fine or not least <= len(found) <= most:
        raise QueryError(field, text, expected)
    return found


def part(query: Query, field: str) -> float | None:
    """A fraction above 0: ``0.95`` or ``95%``.

    Raises:
        QueryError: for anything else.
    """
    found = query.get(field, "").strip()
    number = _number(found.removesuffix("%"))
    value = number / 100 if number is not None and found.endswith("%") else number
    if found and (value is None or not 0.0 < value <= 1.0):
        raise QueryError(field, found, "a fraction above 0, such as 0.95 or 95%")
    return value


def positive(query: Query, field: str, expected: str, *, most: float) -> float | None:
    """A number above 0 and at most ``most``.

    Raises:
        QueryError: with the text ``expected``.
    """
    found = query.get(field, "").strip()
    number = _number(found)
    if found and (number is None or not 0.0 < number <= most):
        raise QueryError(field, found, expected)
    return number


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
