"""Replay: a new engine must make the recorded decisions from the recorded events of a job.

Integers and order must be equal, floats to 1e-9; the wording of reasons is not compared.
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
"""Fields that are not compared: wording, and the training data of a fit, which are in the log."""


class Decided(Value, frozen=True, kw_only=True):
    """One decision: the entry that caused it, its kind, and its content."""

    cause: str
    kind: str
    content: dict[str, Any]

    def __str__(self) -> str:
        content = {key: value for key, value in self.content.items() if key not in {"cause", "reason", "data", "type"}}
        return f"{self.kind} {msgspec.json.encode(content).decode()}"


class Difference(Value, frozen=True, kw_only=True):
    """The first decision that differs from the recorded one."""

    number: int
    """Index of the decision, from 0."""
    recorded: Decided | None
    """None if the engine makes more decisions than were recorded."""
    replayed: Decided | None
    """None if the engine makes fewer decisions."""

    @property
    def sentence(self) -> str:
        """A sentence for the operator."""
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
    """The number of compared decisions."""
    difference: Difference | None


def replay(
    entries: Iterable[Entry], recorded: Iterable[Decided], *, job: int, resolve: Resolve, is_over: bool
) -> Replayed:
    """Compare decisions up to the first that differs.

    If the job ``is_over``, its record is complete; the events and decisions of a running job may end anywhere.
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
    """The command in the form in which it is recorded."""
    content = msgspec.json.decode(msgspec.json.encode(command))
    return Decided(cause=command.cause, kind=str(command.__struct_config__.tag), content=content)


def is_same(one: Decided, other: Decided) -> bool:
    """Whether two decisions are equal except for wording and rounding."""
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
