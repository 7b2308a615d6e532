"""Determines which alerts fire and resolve and which notifications are sent, from findings, state and time. Pure.

An alert is *pending* until its condition has held for the rule's ``for_s``, then *firing*, and *resolved* once the
condition was absent for ``clear_s``. A flapping condition is therefore one alert with one notification. An event fires
when it is first seen and resolves after ``clear_s`` without a notification.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from controlplane.alerts.conditions import Finding
from controlplane.alerts.rules import Rule

GAP: Final = timedelta(seconds=60)
"""After a longer gap between evaluations, the pending time of conditions starts again."""

Key = tuple[int, str]
"""Rule id and finding key."""


class Stage(StrEnum):
    """The stage of an alert."""

    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


class Notice(StrEnum):
    """The content of a message about an alert."""

    FIRING = "firing"
    AGAIN = "again"
    """It is still firing."""
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertState:
    """The stored state of an alert."""

    stage: Stage
    since: datetime
    """When its condition became true."""
    seen: datetime
    """When it was last true."""
    fired: datetime | None = None
    notified: datetime | None = None
    """When the last notification was sent; None: not yet, or it was silenced."""
    is_event: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """An alert that started firing or resolved."""

    key: Key
    stage: Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """A message to send."""

    key: Key
    notice: Notice


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A rule, the time of its last change, and its current findings."""

    rule: Rule
    since: datetime
    found: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The new state, and the resulting changes and notifications."""

    memory: Mapping[Key, AlertState]
    changes: tuple[Change, ...]
    notifications: tuple[Notification, ...]


def evaluate(
    watched: Mapping[int, Watched], memory: Mapping[Key, AlertState], silenced: Collection[Key], now: datetime
) -> Outcome:
    """Evaluate one step. A rule that is not in ``watched``, or disabled, has no findings."""
    present = {
        (number, each.key): (entry, each)
        for number, entry in watched.items()
        if entry.rule.enabled
        for each in entry.found
    }
    after: dict[Key, AlertState] = {}
    notifications: list[Notification] = []
    for key in sorted({*memory, *present}):
        entry, finding = present.get(key, (watched.get(key[0]), None))
        state = _step(entry, finding, memory.get(key), now)
        if state is None:
            continue
        is_notified = entry is not None and entry.rule.enabled and key not in silenced
        notice = _notice(entry.rule, state, now) if entry is not None and is_notified else None
        if notice is not None:
            notifications.append(Notification(key=key, notice=notice))
            state = replace(state, notified=now)
        after[key] = state
    return Outcome(
        memory=_kept(after, present), changes=tuple(_changes(memory, after)), notifications=tuple(notifications)
    )


def _step(
    entry: Watched | None, finding: Finding | None, before: AlertState | None, now: datetime
) -> AlertState | None:
    """The new state of one alert; None: nothing to store."""
    if entry is None or not entry.rule.enabled:  # the rule was removed or disabled
        return replace(before, stage=Stage.RESOLVED) if before and before.stage == Stage.FIRING else None
    rule = entry.rule
    if before.is_event if before else finding is not None and finding.is_event:
        return _event(entry, finding, before, now)
    if finding is None:
        if before is None or before.stage != Stage.FIRING:
            return None
        is_over = (now - before.seen).total_seconds() >= rule.clear_s
        return replace(before, stage=Stage.RESOLVED) if is_over else before
    if before is None or before.stage == Stage.RESOLVED or (before.stage == Stage.PENDING and now - before.seen > GAP):
        before = AlertState(stage=Stage.PENDING, since=now, seen=now)
    if before.stage == Stage.PENDING and (now - before.since).total_seconds() >= rule.for_s:
        return replace(before, stage=Stage.FIRING, seen=now, fired=now)
    return replace(before, seen=now)


def _event(entry: Watched, finding: Finding | None, before: AlertState | None, now: datetime) -> AlertState | None:
    """The state of an event, kept while it is found, so that it fires once."""
    if before is None:
        if finding is None or finding.at is None or finding.at < entry.since:
            return None
        return AlertState(stage=Stage.FIRING, since=finding.at, seen=now, fired=now, is_event=True)
    if before.stage == Stage.FIRING:
        is_over = (now - (before.fired or now)).total_seconds() >= entry.rule.clear_s
        return replace(before, stage=Stage.RESOLVED) if is_over else before
    return None if finding is None else before


def _notice(rule: Rule, state: AlertState, now: datetime) -> Notice | None:
    match state.stage:
        case Stage.FIRING if state.notified is None:
            return Notice.FIRING
        case Stage.FIRING if rule.repeat_s and state.notified and not state.is_event:
            return Notice.AGAIN if (now - state.notified).total_seconds() >= rule.repeat_s else None
        case Stage.RESOLVED if state.notified is not None and not state.is_event:
            return Notice.RESOLVED
        case _:
            return None


def _kept(after: Mapping[Key, AlertState], present: Mapping[Key, tuple[Watched, Finding]]) -> dict[Key, AlertState]:
    """Drop resolved states, except of events that are still found."""
    return {
        key: each for key, each in after.items() if each.stage != Stage.RESOLVED or (key in present and each.is_event)
    }


def _changes(before: Mapping[Key, AlertState], after: Mapping[Key, AlertState]) -> Iterable[Change]:
    for key, each in after.items():
        was = before[key].stage if key in before else None
        if each.stage != was and each.stage != Stage.PENDING:
            yield Change(key=key, stage=each.stage)
