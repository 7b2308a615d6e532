"""Decides when maintenance windows close and open machines: values in, changes out. The time is an argument."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Action = Literal["cordon", "drain"]
STRENGTH = {"open": 0, "cordon": 1, "drain": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One window of a machine that has not ended."""

    number: int
    begins: float
    """When the machine is to be closed, lead time included."""
    ends: float
    action: Action
    applied: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The present state of a machine, and its windows."""

    state: Literal["open", "cordon", "drain"]
    closed_by: int | None
    """The window that closed it; None: a user did, or it is open."""
    windows: tuple[Window, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The change of the machine, and the windows that have begun and ended."""

    to: Literal["open", "cordon", "drain"] | None
    """The new state; None: no change."""
    window: int | None = None
    """The window for which it is closed."""
    begun: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()


def change(machine: Machine, now: float) -> Change | None:
    """The changes at this time; None if there are none.

    A window closes a machine once, when it begins; a user's later changes stay. It opens only what it closed, and
    not during another window. A user's cordon or drain is never undone or weakened.
    """
    ended = [each for each in machine.windows if now >= each.ends]
    begun = [each for each in machine.windows if each.begins <= now < each.ends and not each.applied]
    if not ended and not begun:
        return None
    done, gone = _numbers(begun), _numbers(ended)
    released = machine.closed_by in gone
    state = "open" if released else machine.state
    live = [each for each in machine.windows if each.begins <= now < each.ends]
    candidates = live if released else begun
    strongest = max(candidates, key=lambda each: (STRENGTH[each.action], each.ends), default=None)
    if strongest is not None and STRENGTH[strongest.action] > STRENGTH[state]:
        by_user = machine.state != "open" and machine.closed_by is None
        return Change(to=strongest.action, window=None if by_user else strongest.number, begun=done, ended=gone)
    if released:
        return Change(to="open", begun=done, ended=gone)
    return Change(to=None, begun=done, ended=gone)


def _numbers(windows: Iterable[Window]) -> tuple[int, ...]:
    return tuple(each.number for each in windows)
