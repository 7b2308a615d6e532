"""Rules, targets, alerts and messages as a page shows them."""

from datetime import timedelta
from typing import Any

from django.utils import timezone
from msgspec.structs import replace

from controlplane.alerts.models import Alert, Delivery, Target
from controlplane.alerts.models import Rule as AlertRule
from controlplane.alerts.rules import DEFAULT_RULES
from controlplane.alerts.rules import Rule as RuleDocument
from controlplane.alerts.services import rule_save, silence_create, target_save
from controlplane.alerts.targets import parse_target
from controlplane.jobs.models import Job


def alert_rows(job: Job) -> None:
    """Rules, targets, alerts in each stage, a silence, and messages that arrived, wait and failed."""
    now = timezone.now()
    for name, document in (
        ("oncall", {"kind": "webhook", "url": "https://hooks.example.org/T0/x", "format": "slack"}),
        ("mail", {"kind": "email", "addresses": ["oncall@example.org", "ada@example.org"]}),
    ):
        document_, address = parse_target({"name": name, **document})
        target_save(document=document_, address=address, actor="ada")
    for rule in DEFAULT_RULES:
        rule_save(rule=replace(rule, targets=["oncall"]) if rule.kind == "worker-lost" else rule, actor="ada")
    more = {"for_s": 600.0, "where": {"gpu": "a100"}, "targets": ["oncall", "mail"], "enabled": False}
    rule_save(rule=RuleDocument(name="nightly on the large machines", kind="waiting", **more), actor="ada")
    texts = (
        ("Worker or server lost", "w1 of job {} on machine-1 was lost: was ended by signal 9; restart 1 of 3 in 0.5 s"),
        (
            "Straggler costs 10 %",
            "job {}: w3 takes 2.3 times the others' median; it costs 36% of each iteration",
        ),
        ("Disk filling", "4.1% of the disk with /var/lib/paceline is free (2.0 GB): free some space"),
        ("Job failed", "job {} failed after 60 iterations: w2 ended with status 1; no checkpoint"),
    )
    made = []
    for number, (name, text) in enumerate(texts):
        rule_row = AlertRule.objects.get(name=name)
        at = now - timedelta(minutes=3 + 7 * number)
        about = job if "{}" in text else None
        made.append(
            Alert.objects.create(
                rule=rule_row,
                rule_name=name,
                kind=rule_row.kind,
                severity=rule_row.severity,
                key=f"job-{number}",
                job=about,
                labels={"worker": "w1"} if about else {},
                summary=text.format(f"{job.pk} ({job.name})"),
                path=f"/jobs/{job.pk}/?tab=decisions" if about else "/system/",
                stage="resolved" if number == 3 else "firing",
                silenced=number == 1,
                since=at,
                seen_at=now,
                fired_at=at,
                notified_at=at,
                resolved_at=now if number == 3 else None,
            )
        )
    silence_create(
        until=now + timedelta(hours=8), actor="ada", rule=made[1].rule, job=job, labels={"worker": "w3"}, reason="known"
    )
    oncall, mailbox = (Target.objects.get(name=name) for name in ("oncall", "mail"))
    sent: tuple[tuple[Target, Alert, dict[str, Any]], ...] = (
        (mailbox, made[3], {"state": "delivered", "attempts": 1, "ended_at": now}),
        (oncall, made[0], {"state": "failed", "attempts": 10, "ended_at": now, "error": "status 404: no_team"}),
        (mailbox, made[2], {"state": "queued", "attempts": 3, "error": "ConnectionRefusedError: refused"}),
    )
    for target, alert, fields in sent:
        message = {"rule": alert.rule_name}
        Delivery.objects.create(alert=alert, target=target, notice="firing", message=message, **fields)
