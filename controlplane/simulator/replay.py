"""Replay: the recorded events of a job, given to a fresh engine, must lead to the decisions that were recorded.

Integers and order must be equal, floats to 1e-9; how a reason is worded is not compared.
"""

import math
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any, Final

import msgspec

from controlplane.core.choices import Resolve
from controlplane.core.commands import CARRIERS, AnyCommand
from controlplane.core.context import EventRefused
from controlplane.core.engine import Engine
from controlplane.core.events import Entry
from controlplane.protocol.base import Value

TOLERANCE: Final = 1e-9
UNSTORED: Final = {"reason", "data"}
"""Wording, and what a fit was given, which is in the log."""


class Decided(Value, frozen=True, kw_only=True):
    """One decision: the entry that caused it, its kind, and what it says."""

    cause: str
    kind: str
    content: dict[str, Any]

    def __str__(self) -> str:
        content = {key: value for key, value in self.content.items() if key not in {"cause", "reason", "data", "type"}}
        return f"{self.kind} {msgspec.json.encode(content).decode()}"


class Difference(Value, frozen=True, kw_only=True):
    """The first decision that is not as it was recorded."""

    number: int
    """Which of the decisions, from 0 on."""
    recorded: Decided | None
    """None: the engine decides more than was recorded."""
    replayed: Decided | None
    """None: the engine decides less."""

    @property
    def sentence(self) -> str:
        """For people."""
        found = self.recorded or self.replayed
        assert found is not None
        return (
            f"decision {self.number}, caused by entry {found.cause}: recorded was {self.recorded or 'nothing'}, "
            f"the engine now gives {self.replayed or 'nothing'}"
        )


class Replayed(Value, frozen=True, kw_only=True):
    """The result of a replay."""

    entries: int
    decisions: int
    """How many were compared."""
    difference: Difference | None


def replay(
    entries: Iterable[Entry], recorded: Iterable[Decided], *, job: int, resolve: Resolve, is_over: bool
) -> Replayed:
    """Compare decision by decision, up to the first that differs.

    Where the job ``is_over`` its record is complete; of a running one, events and decisions end anywhere.
    """
    count = _Count()
    decisions = 0
    for number, (was, now) in enumerate(zip_longest(recorded, _decide(entries, job, resolve, count))):
        if (was is None or now is None) and not is_over:
            break
        if was is None or now is None or not is_same(was, now):
            return Replayed(
                entries=count.entries,
                decisions=number,
                difference=Difference(number=number, recorded=was, replayed=now),
            )
        decisions = number + 1
    return Replayed(entries=count.entries, decisions=decisions, difference=None)


def decided(command: AnyCommand) -> Decided:
    """The command as it is recorded."""
    content = msgspec.json.decode(msgspec.json.encode(command))
    return Decided(cause=command.cause, kind=str(command.__struct_config__.tag), content=content)


def is_same(one: Decided, other: Decided) -> bool:
    """Whether two decisions are equal in all but wording and rounding."""
    return one.cause == other.cause and one.kind == other.kind and _agree(_plain(one), _plain(other))


class _Count:
    def __init__(self) -> None:
        self.entries = 0


def _decide(entries: Iterable[Entry], job: int, resolve: Resolve, count: _Count) -> Iterator[Decided]:
    engine = Engine(job=job, resolve=resolve)
    for entry in entries:
        count.entries += 1
        try:
            commands = engine.handle(entry)
        except EventRefused:
            continue
        yield from (decided(command) for command in commands if not isinstance(command, CARRIERS))


def _plain(one: Decided) -> dict[str, Any]:
    return {key: value for key, value in one.content.items() if key not in UNSTORED}


def _agree(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_agree(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_agree, one, other))
    if isinstance(one, float) or isinstance(other, float):
        both = isinstance(one, int | float) and isinstance(other, int | float)
        return both and math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(one == other)
