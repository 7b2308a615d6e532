"""Sizes of data as people write them: ``10 GB``, ``1.5 TiB``, or a number of bytes."""

import re
from decimal import Decimal
from typing import Final

UNITS: Final = {
    "B": 1,
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("kMGT", 1)},
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", 1)},
}
PATTERN: Final = r"^\s*(\d{1,19}(\.\d{1,9})?)\s*([kKmMgGtT]i?)?[bB]?\s*$"
EXPECTED: Final = "a number of bytes, or one with a unit, such as 10 GB or 1.5 TiB"

_BY_LOWER: Final = {unit.lower(): size for unit, size in UNITS.items()}


def read_size(text: str) -> int:
    """The bytes; ``10G`` and ``10 gb`` are read as ``10 GB``.

    Raises:
        ValueError: if it is not a size; the message says what is expected.
    """
    if (found := re.fullmatch(PATTERN, text, re.ASCII)) is None:
        raise ValueError(f"{EXPECTED} (found {text[:40]!r})")
    return int(Decimal(found[1]) * _BY_LOWER[f"{found[3] or ''}b".lower()])


def exact_size(count: int) -> str:
    """The shortest text that is read as exactly this number: ``10 GB``, ``512 MiB``, ``1001 B``."""
    fitting = [(count // size, unit) for unit, size in UNITS.items() if count % size == 0]
    number, unit = min(fitting, key=lambda each: (len(str(each[0])), UNITS[each[1]])) if count else (0, "B")
    return f"{number} {unit}"
