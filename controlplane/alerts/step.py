"""Runs one evaluation of all rules: loads the state, stores the changes, and queues the messages."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

import msgspec
from django.db import transaction

from controlplane.alerts.conditions import Finding, findings
from controlplane.alerts.evaluation import AlertState, Change, Key, Notification, Outcome, Stage, Watched, evaluate
from controlplane.alerts.kinds import KINDS
from controlplane.alerts.messages import Message
from controlplane.alerts.models import Alert, Delivery, Evaluated, Rule, Silence
from controlplane.alerts.silences import Silence as SilenceNow
from controlplane.alerts.silences import is_silenced
from controlplane.alerts.view import View

Places = Callable[[Finding], str]
"""Maps a finding to the path of the page that shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped:
    """The result of one evaluation."""

    changed: int
    """Alerts that started firing or resolved."""
    queued: int
    """Messages."""


@transaction.atomic
def alerts_evaluate(view: View, *, place_of: Places, base_url: str) -> Stepped:
    """Evaluate every rule, and queue the messages. One process at a time."""
    now = view.now
    rows = {row.pk: row for row in Rule.objects.prefetch_related("targets")}
    watched = {number: _watched(row, view) for number, row in rows.items()}
    remembered = Alert.objects.filter(is_remembered=True, rule__isnull=False)
    alerts = {(row.rule_id or 0, row.key): row for row in remembered.order_by("pk")}
    found = {(number, each.key): each for number, entry in watched.items() for each in entry.found}
    silenced = _silenced(found, alerts, now)
    outcome = evaluate(watched, {key: _state_of(row) for key, row in alerts.items()}, silenced, now)
    changes = {change.key: change for change in outcome.changes}
    for key in sorted({*alerts, *outcome.memory}):
        before = vars(alerts[key]).copy() if key in alerts else {}
        alerts[key] = _written(alerts.get(key), key, rows, found.get(key), outcome, changes.get(key), now)
        alerts[key].silenced = key in silenced
        if (change := changes.get(key)) is not None and change.stage == Stage.FIRING and key in found:
            alerts[key].path = place_of(found[key])[:300]
        if vars(alerts[key]) != before:
            alerts[key].save()
    _forget([row for key, row in alerts.items() if key not in outcome.memory])
    queued = [
        each
        for notification in outcome.notifications
        for each in _deliveries(notification, alerts[notification.key], rows, now, base_url)
    ]
    Delivery.objects.bulk_create(queued)
    return Stepped(changed=len(changes), queued=len(queued))


def evaluated_before() -> Evaluated | None:
    """The last evaluation."""
    return Evaluated.objects.order_by("pk").first()


def is_anything_watched() -> bool:
    """Whether there are rules or active alerts to evaluate."""
    return Rule.objects.filter(enabled=True).exists() or Alert.objects.filter(is_remembered=True).exists()


def _watched(row: Rule, view: View) -> Watched:
    rule = row.document
    is_known = rule.kind in KINDS  # a rule of a later release is kept, without effect
    return Watched(rule=rule, since=row.since, found=tuple(findings(rule, view)) if rule.enabled and is_known else ())


def _state_of(row: Alert) -> AlertState:
    return AlertState(
        stage=Stage(row.stage),
        since=row.since,
        seen=row.seen_at,
        fired=row.fired_at,
        notified=row.notified_at,
        is_event=row.is_event,
    )


def _silenced(found: dict[Key, Finding], alerts: dict[Key, Alert], now: datetime) -> set[Key]:
    """Keys of silenced alerts, including those whose condition is no longer found."""
    silences = [
        SilenceNow(until=row.until, rule=row.rule_id, job=row.job_id, labels=row.labels)
        for row in Silence.objects.filter(until__gt=now)
    ]
    if not silences:
        return set()
    about = {key: Finding(key=row.key, summary="", job=row.job_id, labels=row.labels) for key, row in alerts.items()}
    return {key for key, each in (about | found).items() if is_silenced(silences, key[0], each, now)}


def _written(
    row: Alert | None,
    key: Key,
    rules: dict[int, Rule],
    finding: Finding | None,
    outcome: Outcome,
    change: Change | None,
    now: datetime,
) -> Alert:
    """The alert's row with its new state, stored."""
    if row is None:
        rule = rules[key[0]]
        row = Alert(rule=rule, rule_name=rule.name, kind=rule.kind, severity=rule.severity, key=key[1])
    if finding is not None and not (row.is_event and row.pk):
        row.job_id, row.labels, row.is_event = finding.job, dict(finding.labels), finding.is_event
        row.summary, row.value = finding.summary, finding.value
    state = outcome.memory.get(key)
    if state is not None:
        row.stage, row.since, row.seen_at = state.stage, state.since, state.seen
        row.fired_at, row.notified_at = state.fired, state.notified
    if change is not None and change.stage == Stage.RESOLVED:
        row.stage, row.resolved_at = Stage.RESOLVED, now
    row.is_remembered = state is not None
    return row


def _forget(rows: Iterable[Alert]) -> None:
    """Delete alerts that were pending and never fired."""
    Alert.objects.filter(pk__in=[row.pk for row in rows if row.stage == Stage.PENDING]).delete()


def _deliveries(
    notification: Notification, alert: Alert, rules: dict[int, Rule], now: datetime, base_url: str
) -> Iterable[Delivery]:
    row = rules.get(notification.key[0])
    if row is None:
        return
    message = msgspec.to_builtins(message_of(alert, str(notification.notice), base_url))
    for target in row.targets.all():
        yield Delivery(
            alert=alert, target=target, notice=notification.notice, message=message, created_at=now, next_at=now
        )


def message_of(alert: Alert, notice: str, base_url: str) -> Message:
    """The message about the alert's current content."""
    return Message(
        notice=notice,
        rule=alert.rule_name,
        kind=alert.kind,
        severity=alert.severity,
        summary=alert.summary,
        url=base_url + (alert.path or "/alerts/"),
        alert=alert.pk,
        job=alert.job_id,
        value=alert.value,
        labels=alert.labels,
        since=_iso(alert.since),
        fired_at=_iso(alert.fired_at),
        resolved_at=_iso(alert.resolved_at) if notice == "resolved" else "",
    )


def _iso(moment: datetime | None) -> str:
    return moment.isoformat(timespec="seconds") if moment else ""
