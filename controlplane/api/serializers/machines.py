"""Serializers of scheduling, drains, labels and maintenance windows."""

from typing import Any

from rest_framework import serializers

from controlplane.api.serializers.fields import LabelsField, NameField
from controlplane.fleet.models import MaintenanceWindow
from controlplane.fleet.scheduling import MOST_REASON


class SchedulingReason(serializers.Serializer[Any]):
    """Why a machine is cordoned, drained or opened."""

    reason = NameField(max_length=MOST_REASON, default="", allow_blank=True, help_text="For example: new disks.")


class DrainDestination(serializers.Serializer[Any]):
    """What a drain would do to one process."""

    job = serializers.IntegerField()
    role = serializers.ChoiceField(("worker", "server"))
    index = serializers.IntegerField()
    machine = serializers.IntegerField(allow_null=True, help_text="The new machine; null: see the sentence.")
    sentence = serializers.CharField()


class DrainPreview(serializers.Serializer[Any]):
    """What a drain would do now."""

    moves = DrainDestination(many=True)
    seconds = serializers.FloatField(
        allow_null=True, help_text="Expected time until the machine is empty; null if a process stays."
    )


class MoveRow(serializers.Serializer[Any]):
    """The move of one process off the machine."""

    job = serializers.IntegerField(source="job_id")
    role = serializers.ChoiceField(("worker", "server"))
    index = serializers.IntegerField()
    stage = serializers.ChoiceField(("stays", "adding", "leaving", "returning", "moved", "gone"))
    note = serializers.CharField()
    began_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)


class LabelsRequest(serializers.Serializer[Any]):
    """Labels in addition to those of the enrolment token."""

    labels = LabelsField()


class WindowRow(serializers.ModelSerializer[MaintenanceWindow]):
    """A maintenance window."""

    class Meta:
        model = MaintenanceWindow
        fields = ("id", "begins_at", "ends_at", "action", "lead_s", "reason", "created_by", "applied_at", "over_at")
        read_only_fields = fields


class WindowRequest(serializers.Serializer[Any]):
    """A maintenance window to plan."""

    begins_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField()
    action = serializers.ChoiceField(("cordon", "drain"), default="drain")
    lead_s = serializers.IntegerField(
        min_value=0,
        max_value=7 * 86_400,
        default=0,
        help_text="How long before the start the machine is cordoned or drained.",
    )
    reason = NameField(max_length=MOST_REASON, default="", allow_blank=True)
