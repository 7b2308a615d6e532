"""Parts of a parsed YAML or JSON document that are stored unchanged: options of workloads, parameters of policies."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from controlplane.protocol.parts import SpecError

LEAST: Final = -(2**63)
MOST: Final = 2**63 - 1


def check_storable(field: str, document: Any) -> None:
    """Raise ``SpecError`` with the place below ``field`` if a value cannot be stored as JSON in every database."""
    for place, value in _leaves(field, document):
        if isinstance(value, str) and not _is_text(value):
            raise SpecError(place, value, "text without NULs and lone surrogates")
        if isinstance(value, int) and not LEAST <= value <= MOST:
            raise SpecError(place, f"{value:.3e}" if abs(value) < 10**300 else "a huge number", "64 bits at most")
        if isinstance(value, float) and not math.isfinite(value):
            raise SpecError(place, value, "a finite number")


def _leaves(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield place, key
            yield from _leaves(f"{place}.{key}", item)
    elif isinstance(value, list | tuple):
        for at, item in enumerate(value):
            yield from _leaves(f"{place}[{at}]", item)
    else:
        yield place, value


def _is_text(value: str) -> bool:
    return "\0" not in value and (value.isascii() or value == value.encode(errors="replace").decode())
