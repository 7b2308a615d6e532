"""The evaluator: a function of findings, memory and time."""

import itertools
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.alerts.conditions import Finding
from controlplane.alerts.evaluation import (
    AlertState,
    Change,
    Key,
    Notice,
    Notification,
    Outcome,
    Stage,
    Watched,
    evaluate,
)
from controlplane.alerts.rules import Rule

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
KEY: Key = (1, "job-7")
STEP_S = 5


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def rule(kind: str = "waiting", **more: Any) -> Rule:
    return Rule(name="one", kind=kind, **more)


def watched(given_rule: Rule, *found: Finding, since: float = -1000) -> dict[int, Watched]:
    return {1: Watched(rule=given_rule, since=at(since), found=found)}


HOLDS = Finding(key="job-7", summary="it waits")


def happened(seconds: float) -> Finding:
    return Finding(key="job-7", summary="it failed", at=at(seconds), is_event=True)


def told_over(given_rule: Rule, conditions: Iterable[bool]) -> list[tuple[float, str]]:
    """At which second which notice was given, where the condition is looked at every ``STEP_S``."""
    memory: Any = {}
    told = []
    for number, holds in enumerate(conditions):
        now = number * STEP_S
        outcome = evaluate(watched(given_rule, *([HOLDS] if holds else [])), memory, (), at(now))
        memory = outcome.memory
        told += [(now, str(each.notice)) for each in outcome.notifications]
    return told


def test_it_fires_after_its_duration_and_resolves_after_its_absence() -> None:
    waits = rule(for_s=10, clear_s=5)
    first = evaluate(watched(waits, HOLDS), {}, (), at(0))
    pending = AlertState(stage=Stage.PENDING, since=at(0), seen=at(0))
    assert first == Outcome(memory={KEY: pending}, changes=(), notifications=())
    fires = evaluate(watched(waits, HOLDS), first.memory, (), at(10))
    firing = AlertState(stage=Stage.FIRING, since=at(0), seen=at(10), fired=at(10), notified=at(10))
    assert fires == Outcome(
        memory={KEY: firing},
        changes=(Change(key=KEY, stage=Stage.FIRING),),
        notifications=(Notification(key=KEY, notice=Notice.FIRING),),
    )
    absent = evaluate(watched(waits), fires.memory, (), at(12))
    assert absent == Outcome(memory={KEY: firing}, changes=(), notifications=())
    assert evaluate(watched(waits), absent.memory, (), at(15)) == Outcome(
        memory={},
        changes=(Change(key=KEY, stage=Stage.RESOLVED),),
        notifications=(Notification(key=KEY, notice=Notice.RESOLVED),),
    )


def test_what_pends_and_stops_was_nothing() -> None:
    pending = {KEY: AlertState(stage=Stage.PENDING, since=at(0), seen=at(0))}
    assert evaluate(watched(rule(for_s=10)), pending, (), at(5)) == Outcome(memory={}, changes=(), notifications=())


def test_it_is_sent_again_as_long_as_it_fires() -> None:
    assert told_over(rule(repeat_s=60), [True] * 30) == [(0, "firing"), (60, "again"), (120, "again")]
    assert told_over(rule(repeat_s=0), [True] * 30) == [(0, "firing")]


def test_after_a_time_without_evaluations_pending_begins_anew() -> None:
    waits = rule(for_s=300)
    pending = {KEY: AlertState(stage=Stage.PENDING, since=at(0), seen=at(100))}
    later = evaluate(watched(waits, HOLDS), pending, (), at(1000))
    assert later.memory == {KEY: AlertState(stage=Stage.PENDING, since=at(1000), seen=at(1000))}


def test_a_silenced_alert_is_sent_when_the_silence_ends() -> None:
    quiet = evaluate(watched(rule(), HOLDS), {}, {KEY}, at(0))
    assert (quiet.notifications, quiet.changes) == ((), (Change(key=KEY, stage=Stage.FIRING),))
    assert evaluate(watched(rule(clear_s=0)), quiet.memory, (), at(5)).notifications == ()
    assert evaluate(watched(rule(), HOLDS), quiet.memory, (), at(5)).notifications == (
        Notification(key=KEY, notice=Notice.FIRING),
    )


def test_resolved_is_not_sent_during_a_silence() -> None:
    fires = evaluate(watched(rule(clear_s=0), HOLDS), {}, (), at(0))
    assert evaluate(watched(rule(clear_s=0)), fires.memory, {KEY}, at(5)).notifications == ()


@pytest.mark.parametrize("after", [{}, watched(rule(enabled=False), HOLDS)])
def test_an_alert_of_a_rule_that_is_gone_or_switched_off_resolves_quietly(after: dict[int, Watched]) -> None:
    fires = evaluate(watched(rule(), HOLDS), {}, (), at(0))
    gone = evaluate(after, fires.memory, (), at(5))
    assert (gone.memory, gone.changes) == ({}, (Change(key=KEY, stage=Stage.RESOLVED),))
    assert gone.notifications == ()


def test_an_event_fires_once_and_sends_no_resolved_message() -> None:
    failed, memory, told, changes = rule("job-failed", clear_s=20, repeat_s=60), {}, [], []
    for now in range(0, 300, 5):
        found = [happened(7)] if 7 <= now < 200 else []
        outcome = evaluate(watched(failed, *found), memory, (), at(now))
        memory = dict(outcome.memory)
        told += [(now, each.notice) for each in outcome.notifications]
        changes += [(now, each.stage) for each in outcome.changes]
    assert told == [(10, Notice.FIRING)]
    assert changes == [(10, Stage.FIRING), (30, Stage.RESOLVED)]
    assert memory == {}


def test_an_event_from_before_its_rule_is_no_alert() -> None:
    assert evaluate(watched(rule("job-failed"), happened(-5), since=0), {}, (), at(1)).memory == {}


CONDITIONS = st.lists(st.booleans(), max_size=80)
STEPS = st.integers(0, 12)


@given(conditions=CONDITIONS, needed=STEPS, clear=STEPS)
def test_an_alert_fires_iff_its_condition_held_for_the_whole_window(
    conditions: Sequence[bool], needed: int, clear: int
) -> None:
    """Of the alerts that do not fire yet: for ``for_s``, looked at every step, without a gap."""
    told = told_over(rule(for_s=needed * STEP_S, clear_s=clear * STEP_S, repeat_s=0), conditions)
    fired = [int(now) // STEP_S for now, notice in told if notice == "firing"]
    resolved = [int(now) // STEP_S for now, notice in told if notice == "resolved"]
    is_firing, held, absent, expected_fired, expected_resolved = False, 0, 0, [], []
    for number, holds in enumerate(conditions):
        held, absent = (held + 1, 0) if holds else (0, absent + 1)
        if not is_firing and held > needed:
            is_firing = True
            expected_fired.append(number)
        elif is_firing and absent and absent >= clear:
            is_firing, held = False, 0
            expected_resolved.append(number)
    assert (fired, resolved) == (expected_fired, expected_resolved)


@given(conditions=CONDITIONS, needed=STEPS, clear=STEPS)
def test_flapping_does_not_spam(conditions: Sequence[bool], needed: int, clear: int) -> None:
    """From one message that it fires to the next it must have been away for ``clear_s`` and back for ``for_s``."""
    told = told_over(rule(for_s=needed * STEP_S, clear_s=clear * STEP_S, repeat_s=0), conditions)
    fired = [now for now, notice in told if notice == "firing"]
    assert all(later - earlier >= (needed + clear) * STEP_S for earlier, later in itertools.pairwise(fired))
    assert [notice for _, notice in told] == ["firing", "resolved"] * (len(told) // 2) + ["firing"] * (len(told) % 2)


@given(conditions=CONDITIONS, repeat=st.integers(12, 40))
def test_reminders_are_no_closer_than_the_rule_allows(conditions: Sequence[bool], repeat: int) -> None:
    told = told_over(rule(clear_s=60, repeat_s=repeat * STEP_S), conditions)
    again = [now for now, notice in told if notice != "resolved"]
    pairs = itertools.pairwise(again)
    assert all(later - earlier >= min(60, repeat * STEP_S) for earlier, later in pairs)


@given(conditions=CONDITIONS, others=CONDITIONS, needed=STEPS)
def test_alerts_do_not_know_of_one_another(conditions: list[bool], others: list[bool], needed: int) -> None:
    """The messages of one finding are the same with and without another one beside it."""
    waits, memory, told = rule(for_s=needed * STEP_S), {}, []
    for number, holds in enumerate(conditions):
        beside = [Finding(key="job-8", summary="")] if number < len(others) and others[number] else []
        found = [*([HOLDS] if holds else []), *beside]
        outcome = evaluate(watched(waits, *found), memory, (), at(number * STEP_S))
        memory = dict(outcome.memory)
        told += [(number * STEP_S, str(each.notice)) for each in outcome.notifications if each.key == KEY]
    assert told == told_over(waits, conditions)
