"""Writes rules, targets and silences. Each change is audited."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec
from django.db import transaction
from django.utils import timezone

from controlplane.alerts.evaluation import Stage
from controlplane.alerts.messages import Message
from controlplane.alerts.models import Delivery, Rule, Silence, Target
from controlplane.alerts.rules import MOST_RULES, rule_document
from controlplane.alerts.rules import Rule as RuleDocument
from controlplane.alerts.targets import Address, TargetDocument
from controlplane.jobs.models import Job
from controlplane.jobs.sealing import SealBroken, seal, unseal
from controlplane.jobs.services import audit
from controlplane.protocol.parts import SpecError

MOST_TARGETS = 50
MOST_SILENCES = 200
_PLAIN = ("name", "kind", "severity", "enabled", "where", "parameters", "for_s", "clear_s", "repeat_s")


class InUse(Exception):
    """A target cannot be removed while rules use it; the message names them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The changes of an import, by name."""

    created: list[str]
    changed: list[str]
    removed: list[str]
    same: list[str]


@transaction.atomic
def rule_save(*, rule: RuleDocument, actor: str, row: Rule | None = None) -> Rule:
    """Create a rule, or change ``row``.

    Raises:
        SpecError: if the name is taken, a target does not exist, or there are too many rules.
    """
    if Rule.objects.filter(name=rule.name).exclude(pk=row.pk if row else 0).exists():
        raise SpecError("name", rule.name, "a unique rule name")
    if row is None and Rule.objects.count() >= MOST_RULES:
        raise SpecError("", f"{MOST_RULES} rules", f"at most {MOST_RULES}: remove some first")
    targets = {target.name: target for target in Target.objects.filter(name__in=rule.targets)}
    for name in rule.targets:
        if name not in targets:
            raise SpecError("targets", name, f"existing targets: {', '.join(_target_names()) or 'there are none yet'}")
    before = row.document if row else None
    row = row or Rule()
    for name in _PLAIN:
        setattr(row, name, getattr(rule, name))
    row.since = timezone.now()
    row.save()
    row.targets.set(targets.values())
    detail = {"rule": rule_document(rule)} | ({"before": rule_document(before)} if before else {})
    audit(actor=actor, action="alert-rule-change" if before else "alert-rule-create", subject=_of(row), detail=detail)
    return row


@transaction.atomic
def rule_remove(*, row: Rule, actor: str) -> None:
    """Remove the rule; its alerts are resolved and stay listed."""
    audit(actor=actor, action="alert-rule-remove", subject=_of(row), detail={"rule": rule_document(row.document)})
    row.alerts.filter(stage=Stage.PENDING).delete()
    ended = {"resolved_at": timezone.now(), "stage": Stage.RESOLVED}
    row.alerts.filter(stage=Stage.FIRING).update(**ended)
    row.alerts.update(is_remembered=False)
    row.delete()


@transaction.atomic
def rules_import(*, rules: Sequence[RuleDocument], actor: str) -> Imported:
    """Replace all rules by these, matched by name; unchanged rules are not touched.

    Raises:
        SpecError: if a target does not exist; nothing is changed then.
    """
    there = {row.name: row for row in Rule.objects.prefetch_related("targets")}
    named = {rule.name for rule in rules}
    removed = sorted(set(there) - named)
    for name in removed:
        rule_remove(row=there[name], actor=actor)
    done = Imported(created=[], changed=[], removed=removed, same=[])
    for at, rule in enumerate(rules):
        row = there.get(rule.name)
        if row is not None and row.document == msgspec.structs.replace(rule, targets=sorted(rule.targets)):
            done.same.append(rule.name)
            continue
        try:
            rule_save(rule=rule, actor=actor, row=row)
        except SpecError as error:
            raise SpecError(f"rules[{at}].{error.field}", error.found, error.expected) from None
        (done.changed if row else done.created).append(rule.name)
    return done


@transaction.atomic
def target_save(
    *, document: TargetDocument, address: Address, actor: str, row: Target | None = None
) -> tuple[Target, Address]:
    """Create a target, or change ``row``. A webhook without a secret gets one.

    Raises:
        SpecError: if the name is taken, or there are too many.
    """
    if Target.objects.filter(name=document.name).exclude(pk=row.pk if row else 0).exists():
        raise SpecError("name", document.name, "a unique target name")
    if row is None and Target.objects.count() >= MOST_TARGETS:
        raise SpecError("", f"{MOST_TARGETS} targets", f"at most {MOST_TARGETS}: remove some first")
    if document.kind == "webhook" and not address.secret:
        address = msgspec.structs.replace(address, secret=secrets.token_urlsafe(32))
    action = "alert-target-change" if row else "alert-target-create"
    row = row or Target()
    row.name, row.kind, row.format = document.name, document.kind, document.format
    row.sealed = seal(msgspec.json.encode(address))
    row.save()
    detail = {"kind": row.kind, "format": row.format, "to": address.shown}
    audit(actor=actor, action=action, subject=_of_target(row), detail=detail)
    return row, address


@transaction.atomic
def target_remove(*, row: Target, actor: str) -> None:
    """Remove the target, with its deliveries.

    Raises:
        InUse: if rules use it.
    """
    users = list(row.rules.order_by("name").values_list("name", flat=True))
    if users:
        raise InUse(f"these rules use {row.name}: {', '.join(users)}; remove it from them first")
    audit(actor=actor, action="alert-target-remove", subject=_of_target(row))
    row.delete()


@transaction.atomic
def target_test(*, row: Target, actor: str, base_url: str) -> Delivery:
    """Queue a test message."""
    message = Message(
        notice="test",
        rule="target test",
        kind="test",
        severity="info",
        summary=f"test of the target {row.name} by {actor}: alert messages arrive here",
        url=f"{base_url}/alerts/",
    )
    audit(actor=actor, action="alert-target-test", subject=_of_target(row))
    return Delivery.objects.create(target=row, notice="test", message=msgspec.to_builtins(message))


def address_of(row: Target) -> Address:
    """The decrypted address of a target.

    Raises:
        SealBroken: if it was stored under a ``SECRET_KEY`` that is not configured.
    """
    return msgspec.json.decode(unseal(row.sealed), type=Address)


def shown_of(row: Target) -> str:
    """The displayable address of a target, or a note that it cannot be decrypted."""
    try:
        return address_of(row).shown
    except SealBroken:
        return "cannot be decrypted: see SECRET_KEY_FALLBACKS, or set it again"


@transaction.atomic
def silence_create(
    *,
    until: datetime,
    actor: str,
    rule: Rule | None = None,
    job: Job | None = None,
    labels: dict[str, str] | None = None,
    reason: str = "",
) -> Silence:
    """Suppress notifications of matching alerts until ``until``.

    Raises:
        SpecError: if there are too many already.
    """
    if Silence.objects.filter(until__gt=timezone.now()).count() >= MOST_SILENCES:
        raise SpecError("", f"{MOST_SILENCES} silences", f"at most {MOST_SILENCES}: end some first")
    row = Silence.objects.create(
        rule=rule, job=job, labels=labels or {}, reason=reason, until=until, created_by=actor[:150]
    )
    detail = {"about": row.about, "until": until.isoformat(), "reason": reason}
    audit(actor=actor, action="alert-silence", subject=f"silence {row.pk}", detail=detail, job=job)
    return row


@transaction.atomic
def silence_end(*, row: Silence, actor: str) -> None:
    """End a silence now."""
    row.until = min(row.until, timezone.now())
    row.save(update_fields=["until"])
    detail = {"about": row.about}
    audit(actor=actor, action="alert-silence-end", subject=f"silence {row.pk}", detail=detail, job=row.job)


@transaction.atomic
def delivery_resend(*, row: Delivery, actor: str) -> bool:
    """Requeue a failed delivery with the same key; False if it has not failed."""
    found = Delivery.objects.filter(pk=row.pk, state=Delivery.State.FAILED)
    if not found.update(state=Delivery.State.QUEUED, attempts=0, next_at=timezone.now(), ended_at=None):
        return False
    detail = {"target": row.target.name}
    job = row.alert.job if row.alert else None
    audit(actor=actor, action="alert-resend", subject=f"delivery {row.pk}", detail=detail, job=job)
    return True


def _target_names() -> list[str]:
    return list(Target.objects.order_by("name").values_list("name", flat=True))


def _of(row: Rule) -> str:
    return f"alert rule {row.name}"


def _of_target(row: Target) -> str:
    return f"alert target {row.name}"
