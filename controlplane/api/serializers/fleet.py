"""Machines, and how they join."""

from dataclasses import asdict
from typing import Any

from drf_spectacular.utils import extend_schema_field, inline_serializer
from rest_framework import serializers

from controlplane.api.serializers.fields import LabelsField, NameField
from controlplane.fleet.credentials import rotation
from controlplane.fleet.models import Agent

DAY_S = 86_400


class AgentRow(serializers.ModelSerializer[Agent]):
    """A machine."""

    labels = serializers.DictField(
        child=serializers.CharField(), read_only=True, help_text="Of its enrolment token; jobs are placed by these."
    )
    unverified_labels = serializers.DictField(
        child=serializers.CharField(), read_only=True, help_text="What the machine says of itself beside them."
    )
    slots = serializers.ListField(child=serializers.JSONField(), read_only=True)
    reserved = serializers.SerializerMethodField()
    rotation = serializers.SerializerMethodField()

    class Meta:
        model = Agent
        fields = (
            *("id", "name", "state", "version", "host", "labels", "unverified_labels"),
            *("slots", "server_slots", "reserved"),
            *("cpu_count", "memory_bytes", "joined_at", "seen_at", "rotation"),
        )
        read_only_fields = fields

    @extend_schema_field(
        serializers.ListSerializer(
            child=inline_serializer(
                "ReservedSlot",
                {
                    "role": serializers.ChoiceField(("worker", "server")),
                    "slot": serializers.IntegerField(),
                    "job": serializers.IntegerField(),
                    "index": serializers.IntegerField(),
                },
            )
        )
    )
    def get_reserved(self, agent: Agent) -> list[dict[str, Any]]:
        """Which of its slots are held, and by whom."""
        rows = sorted(agent.reservations.all(), key=lambda row: (row.role, row.slot))
        return [{"role": row.role, "slot": row.slot, "job": row.job_id, "index": row.index} for row in rows]

    @extend_schema_field({"type": "object", "additionalProperties": True})
    def get_rotation(self, agent: Agent) -> dict[str, Any]:
        """Where the rotation of its credential stands; no secret is here, nor any hash of one."""
        return asdict(rotation(agent))


class EnrolRequest(serializers.Serializer[Any]):
    """A machine asks to join."""

    token = serializers.CharField(max_length=200)
    name = NameField()


class EnrolReply(serializers.Serializer[Any]):
    """A machine has joined."""

    agent = serializers.IntegerField()
    credential = serializers.CharField(help_text="Shown once; the agent keeps it.")


class EnrolmentTokenRequest(serializers.Serializer[Any]):
    """An invitation for one machine."""

    name = NameField(
        allow_blank=True,
        default="",
        help_text="The machine that may join with it, again if it is known and offline; empty: any that is not known.",
    )
    labels = LabelsField(default=dict)
    lifetime_s = serializers.IntegerField(min_value=1, max_value=30 * DAY_S, default=3600)


class EnrolmentTokenReply(serializers.Serializer[Any]):
    """An invitation, in clear for this once."""

    token = serializers.CharField()
    expires_at = serializers.DateTimeField()
    command = serializers.CharField(help_text="What to run on the machine.")
