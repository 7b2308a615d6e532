"""Rows that tests of alerts begin with."""

from typing import Any

from controlplane.alerts.models import Alert, Delivery, Rule, Target
from controlplane.alerts.rules import parse_rule
from controlplane.alerts.services import rule_save, target_save
from controlplane.alerts.targets import parse_target

SECRET = "s" * 32


def webhook(url: str, *, name: str = "hook", **more: Any) -> Target:
    document, address = parse_target({"name": name, "kind": "webhook", "url": url, "secret": SECRET, **more})
    return target_save(document=document, address=address, actor="ada")[0]


def mailbox(*addresses: str, name: str = "mail") -> Target:
    document, address = parse_target({"name": name, "kind": "email", "addresses": list(addresses)})
    return target_save(document=document, address=address, actor="ada")[0]


def saved_rule(kind: str = "disk-filling", *, name: str = "one", **more: Any) -> Rule:
    return rule_save(rule=parse_rule({"name": name, "kind": kind, **more}), actor="ada")


def deliveries() -> list[tuple[str, str, int]]:
    rows = Delivery.objects.order_by("pk")
    return [(row.notice, row.state, row.attempts) for row in rows]


def alerts() -> list[tuple[str, str]]:
    return [(row.rule_name, row.stage) for row in Alert.objects.order_by("pk")]
