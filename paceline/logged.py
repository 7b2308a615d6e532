"""Validates numbers from the script: losses and the series of ``log``. Other values are reported once and dropped."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from controlplane.protocol.messages import MAX_LOGGED
from paceline.marks import Clock

LONGEST_NAME: Final = 255

Number = Callable[[], float]
Say = Callable[[str], None]


class Names:
    """The names passed to ``log``; a job keeps a limited number of series.

    Args:
        say: writes a sentence to the script's log, once.
    """

    def __init__(self, say: Say) -> None:
        self._say = say
        self._known: set[str] = set()

    def numbers(self, clock: Clock, series: Mapping[str, Any]) -> dict[str, Number]:
        """Return the accepted part of ``series``, to be read once the device has computed it."""
        found = {}
        for name, value in series.items():
            if not self._is_kept(name):
                continue
            number = number_of(clock, f"log({name}=...)", value, self._say)
            if number is not None:
                found[name] = number
        return found

    def _is_kept(self, name: str) -> bool:
        if name in self._known:
            return True
        if len(name) > LONGEST_NAME:
            self._say(f"log(): the name {name[:40]!r}... has {len(name)} characters, at most {LONGEST_NAME} are kept")
            return False
        if len(self._known) == MAX_LOGGED:
            kept = ", ".join(sorted(self._known)[:3])
            self._say(
                f"log(): {name!r} and further names are dropped: a job keeps {MAX_LOGGED} series, and has"
                f" {kept} and others; put what varies into values, not into names"
            )
            return False
        self._known.add(name)
        return True


def number_of(clock: Clock, what: str, value: Any, say: Say) -> Number | None:
    """Return the number, to be read once the device has computed it; None: it is not a number, which is logged."""
    elements = value.numel() if hasattr(value, "numel") else 1
    try:
        if elements != 1:
            raise ValueError
        if not hasattr(value, "detach"):
            value = float(value)
        return clock.number(value)
    except (TypeError, ValueError, OverflowError):
        found = f"a tensor with {elements} elements" if elements != 1 else repr(value)[:60]
        say(f"{what}: found {found}, expected a number or a tensor with one element; it is dropped")
        return None
