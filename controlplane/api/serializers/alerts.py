"""Serializers of alerts, rules, targets, silences and deliveries."""

from datetime import timedelta
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.alerts.evaluation import Stage
from controlplane.alerts.models import Alert, Delivery, Rule, Silence, Target
from controlplane.alerts.rules import SEVERITIES
from controlplane.alerts.services import shown_of
from controlplane.api.serializers.fields import LabelsField, NameField

MOST_MINUTES = 90 * 24 * 60
LABELS = {"type": "object", "additionalProperties": {"type": "string"}}


class AlertRow(serializers.ModelSerializer[Alert]):
    """An alert: pending, firing or resolved."""

    rule = serializers.CharField(source="rule_name", read_only=True)
    stage = serializers.ChoiceField([str(stage) for stage in Stage], read_only=True)
    severity = serializers.ChoiceField(SEVERITIES, read_only=True)
    labels = serializers.SerializerMethodField()

    class Meta:
        model = Alert
        fields = (
            *("id", "rule", "kind", "severity", "stage", "job", "labels", "summary", "value", "path"),
            *("silenced", "since", "fired_at", "resolved_at"),
        )
        read_only_fields = fields

    @extend_schema_field(LABELS)
    def get_labels(self, row: Alert) -> dict[str, str]:
        """Its labels, by which rules and silences select it."""
        return dict(row.labels)


class NotificationsReply(serializers.Serializer[Any]):
    """The alerts that every open page shows."""

    firing = serializers.IntegerField(help_text="Number of firing alerts that are not silenced.")
    latest = AlertRow(many=True, help_text="The latest of them, at most 20.")


class RuleRow(serializers.ModelSerializer[Rule]):
    """A rule."""

    where = serializers.SerializerMethodField()
    parameters = serializers.SerializerMethodField()
    severity = serializers.ChoiceField(SEVERITIES, read_only=True)
    targets = serializers.SerializerMethodField()

    class Meta:
        model = Rule
        fields = (
            *("id", "name", "kind", "severity", "enabled", "where", "parameters"),
            *("for_s", "clear_s", "repeat_s", "targets", "since"),
        )
        read_only_fields = fields

    @extend_schema_field(LABELS)
    def get_where(self, row: Rule) -> dict[str, str]:
        """Labels that its alerts must have."""
        return dict(row.where)

    @extend_schema_field({"type": "object", "additionalProperties": {"type": "number"}})
    def get_parameters(self, row: Rule) -> dict[str, float]:
        """Parameters that differ from the defaults of its kind."""
        return dict(row.parameters)

    def get_targets(self, row: Rule) -> list[str]:
        """Names of targets."""
        return row.document.targets


class ImportReply(serializers.Serializer[Any]):
    """The result of an import, by rule name."""

    created = serializers.ListField(child=serializers.CharField())
    changed = serializers.ListField(child=serializers.CharField())
    removed = serializers.ListField(child=serializers.CharField())
    same = serializers.ListField(child=serializers.CharField())


class TargetRow(serializers.ModelSerializer[Target]):
    """A target, without its secrets."""

    kind = serializers.ChoiceField(Target.Kind.values, read_only=True)
    format = serializers.ChoiceField(Target.Format.values, read_only=True)
    to = serializers.SerializerMethodField()

    class Meta:
        model = Target
        fields: tuple[str, ...] = ("id", "name", "kind", "format", "to", "created_at")
        read_only_fields = fields

    def get_to(self, row: Target) -> str:
        """Scheme and host of a webhook, or the addresses of mail."""
        return shown_of(row)


class NewTarget(TargetRow):
    """A target with its signing secret, which is shown only once."""

    secret = serializers.CharField(read_only=True, help_text="Empty for mail, and if the secret was not changed.")

    class Meta(TargetRow.Meta):
        fields = (*TargetRow.Meta.fields, "secret")


class SilenceRequest(serializers.Serializer[Any]):
    """Which alerts to silence: those that match all given fields; at least one is required."""

    rule = NameField(required=False, allow_null=True, default=None, help_text="Name of a rule.")
    job = serializers.IntegerField(required=False, allow_null=True, default=None, min_value=1, max_value=2**31 - 1)
    labels = LabelsField(required=False, default=dict)
    minutes = serializers.IntegerField(min_value=1, max_value=MOST_MINUTES)
    reason = NameField(required=False, allow_blank=True, default="", max_length=200)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Require at least one field, so that it does not silence everything, and look up its rule and job."""
        if not (attrs["rule"] or attrs["job"] or attrs["labels"]):
            raise serializers.ValidationError("at least one of rule, job and labels")
        return attrs | {"until": timezone.now() + timedelta(minutes=attrs["minutes"])}


class SilenceRow(serializers.ModelSerializer[Silence]):
    """A silence."""

    rule = serializers.CharField(source="rule.name", default=None, read_only=True, allow_null=True)
    labels = serializers.SerializerMethodField()

    class Meta:
        model = Silence
        fields = ("id", "rule", "job", "labels", "reason", "until", "created_at", "created_by")
        read_only_fields = fields

    @extend_schema_field(LABELS)
    def get_labels(self, row: Silence) -> dict[str, str]:
        """Labels of its alerts."""
        return dict(row.labels)


class DeliveryRow(serializers.ModelSerializer[Delivery]):
    """One message to one target."""

    target = serializers.CharField(source="target.name", read_only=True)
    state = serializers.ChoiceField(Delivery.State.values, read_only=True)
    notice = serializers.CharField(read_only=True, help_text="firing, again, resolved or test")

    class Meta:
        model = Delivery
        fields = (
            *("id", "alert", "target", "notice", "key", "state", "attempts"),
            *("error", "created_at", "next_at", "ended_at"),
        )
        read_only_fields = fields
