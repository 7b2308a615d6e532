"""Reads the alerts page: firing alerts, silences, rules, targets and deliveries."""

import json
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db.models import Case, IntegerField, When

from controlplane.alerts.evaluation import Stage
from controlplane.alerts.kinds import KINDS, Parameter
from controlplane.alerts.models import Alert, Delivery, Rule, Silence, Target
from controlplane.alerts.rules import DEFAULT_RULES, SEVERITIES, rule_document, rules_document
from controlplane.alerts.services import shown_of
from controlplane.jobs.viewing import visible
from frontend import formats

FIRING: Final = 100
RESOLVED: Final = 20
DELIVERIES: Final = 30
"""Maximum number of rows of each table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """An alert, and the request that silences it."""

    alert: Alert
    silence: str
    failed: int
    """Number of undelivered messages about it."""

    @property
    def about(self) -> str:
        """The subject of a silence of this alert, as text."""
        worker = self.alert.labels.get("worker", "")
        job = f" of job #{self.alert.job_id}" if self.alert.job_id else ""
        return f"{self.alert.rule_name}{f' for {worker}' if worker else ''}{job}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleLine:
    """A rule as text and as the document that the form edits."""

    row: Rule
    title: str
    condition: str
    document: str
    targets: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLine:
    """A target, its address, and its last delivery."""

    row: Target
    to: str
    last: Delivery | None


def alerts_context(now: datetime) -> dict[str, Any]:
    """The context of the whole page."""
    seen = visible(Alert.objects.all(), "job__team")
    ranks = [When(severity=severity, then=rank) for rank, severity in enumerate(SEVERITIES)]
    most_severe = Case(*ranks, default=0, output_field=IntegerField()).desc()
    firing = seen.filter(stage=Stage.FIRING).order_by("silenced", most_severe, "-fired_at")[:FIRING]
    deliveries = visible(Delivery.objects.all(), "alert__job__team")
    silences = visible(Silence.objects.filter(until__gt=now), "job__team")
    failed = Delivery.objects.filter(state=Delivery.State.FAILED)
    missed = Counter(failed.filter(alert__stage=Stage.FIRING).values_list("alert_id", flat=True))
    return {
        "firing": [_line(alert, missed.get(alert.pk, 0)) for alert in firing],
        "pending": seen.filter(stage=Stage.PENDING).count(),
        "resolved": seen.filter(stage=Stage.RESOLVED).order_by("-resolved_at", "-pk")[:RESOLVED],
        "silences": silences.select_related("rule").order_by("until"),
        "rules": [_rule(row) for row in Rule.objects.prefetch_related("targets").order_by("name")],
        "targets": [_target(row) for row in Target.objects.order_by("name")],
        "deliveries": deliveries.select_related("target", "alert").order_by("-pk")[:DELIVERIES],
        "failed": sum(missed.values()),
        "default_rules": json.dumps(rules_document(DEFAULT_RULES)),
    }


def form_context() -> dict[str, Any]:
    """The options of the rule form."""
    kinds = {
        name: {
            "title": kind.title,
            "what": kind.what,
            "event": kind.is_event,
            "parameters": {key: _parameter(each) for key, each in kind.parameters.items()},
        }
        for name, kind in KINDS.items()
    }
    return {"kinds": kinds, "kinds_json": json.dumps(kinds), "severities": SEVERITIES}


def _parameter(each: Parameter) -> dict[str, Any]:
    scale = 100 if each.unit == "%" else 1
    return {
        "title": each.title,
        "unit": each.unit,
        "default": each.default * scale,
        "least": each.least * scale,
        "most": each.most * scale,
    }


def _line(alert: Alert, failed: int) -> Line:
    body: dict[str, Any] = {"rule": alert.rule_name}
    if alert.job_id:
        body["job"] = alert.job_id
    if worker := alert.labels.get("worker"):
        body["labels"] = {"worker": worker}
    return Line(alert=alert, silence=json.dumps(body), failed=failed)


def _rule(row: Rule) -> RuleLine:
    rule = row.document
    kind = KINDS.get(rule.kind)
    parts = [
        f"{each.title.lower()} {_value(rule.parameter(name), each.unit)}"
        for name, each in (kind.parameters.items() if kind else ())
    ]
    if rule.for_s:
        parts.append(f"for {formats.span(rule.for_s)}")
    parts += [f"{name} = {value}" for name, value in sorted(rule.where.items())]
    return RuleLine(
        row=row,
        title=kind.title if kind else rule.kind,
        condition=", ".join(parts),
        document=json.dumps(rule_document(rule)),
        targets=rule.targets,
    )


def _value(value: float, unit: str) -> str:
    return formats.percent(value) if unit == "%" else formats.span(value)


def _target(row: Target) -> TargetLine:
    last = row.deliveries.exclude(state=Delivery.State.QUEUED).order_by("-ended_at", "-pk").first()
    return TargetLine(row=row, to=shown_of(row), last=last)
