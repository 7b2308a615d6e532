"""Serializers of machines, enrolment and enrolment tokens."""

from dataclasses import asdict
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field, inline_serializer
from rest_framework import serializers

from controlplane.api.serializers.fields import LabelsField, NameField
from controlplane.api.serializers.machines import MoveRow
from controlplane.fleet.credentials import rotation
from controlplane.fleet.models import Agent, EnrolmentToken
from controlplane.fleet.samples import OWN_COLUMNS
from controlplane.fleet.scheduling import shown_moves
from controlplane.fleet.services import MOST_USES
from controlplane.protocol.measurements import OF_MACHINES

DAY_S = 86_400


class AgentRow(serializers.ModelSerializer[Agent]):
    """A machine."""

    labels = serializers.DictField(
        child=serializers.CharField(), read_only=True, help_text="From its enrolment token; used for scheduling."
    )
    unverified_labels = serializers.DictField(
        child=serializers.CharField(),
        read_only=True,
        help_text="Reported by the machine itself; not used for scheduling.",
    )
    added_labels = serializers.DictField(
        child=serializers.CharField(), read_only=True, help_text="Added by an admin; used for scheduling."
    )
    slots = serializers.ListField(child=serializers.JSONField(), read_only=True)
    runs_scripts = serializers.BooleanField(
        read_only=True, help_text="Whether its agent starts scripts of jobs (join --allow-scripts)."
    )
    reserved = serializers.SerializerMethodField()
    rotation = serializers.SerializerMethodField()
    moves = serializers.SerializerMethodField()
    sampled_at = serializers.DateTimeField(read_only=True, allow_null=True)
    measurements = serializers.SerializerMethodField()

    class Meta:
        model = Agent
        fields = (
            *("id", "name", "state", "version", "host", "labels", "added_labels", "unverified_labels"),
            *("slots", "server_slots", "runs_scripts", "reserved"),
            *("scheduling", "scheduling_reason", "scheduling_by", "scheduling_since", "moves"),
            *("cpu_count", "memory_bytes", "joined_at", "seen_at", "rotation", "credential_expires_at"),
            *("sampled_at", "measurements"),
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
        """Its reserved slots, with their jobs and processes."""
        rows = sorted(agent.reservations.all(), key=lambda row: (row.role, row.slot))
        return [{"role": row.role, "slot": row.slot, "job": row.job_id, "index": row.index} for row in rows]

    @extend_schema_field(MoveRow(many=True))
    def get_moves(self, agent: Agent) -> Any:
        """Progress of each process of a machine that is being drained."""
        if agent.scheduling != Agent.Scheduling.DRAINING:
            return []
        return MoveRow(shown_moves(agent, timezone.now()), many=True).data

    @extend_schema_field(
        inline_serializer(
            "MachineMeasurements",
            {
                each.name: serializers.FloatField(
                    required=not each.is_optional, help_text=each.title + (f", in {each.unit}" if each.unit else "")
                )
                for each in OF_MACHINES
            },
            allow_null=True,
        )
    )
    def get_measurements(self, agent: Any) -> dict[str, float] | None:
        """Its latest sample, at ``sampled_at``; measurements that it does not have are omitted."""
        if agent.sampled_at is None:
            return None
        own: dict[str, float] = {name: getattr(agent, f"sampled_{name}") for name in OWN_COLUMNS}
        return {**own, **agent.sampled_others}

    @extend_schema_field({"type": "object", "additionalProperties": True})
    def get_rotation(self, agent: Agent) -> dict[str, Any]:
        """The state of its credential's rotation; it contains no secret, and no hash of one."""
        return asdict(rotation(agent))


class EnrolRequest(serializers.Serializer[Any]):
    """A machine's request to join."""

    token = serializers.CharField(
        max_length=3_500, help_text="An enrolment token, or the service-account token of a Kubernetes pod."
    )
    name = NameField()


class EnrolReply(serializers.Serializer[Any]):
    """A machine has joined."""

    agent = serializers.IntegerField()
    credential = serializers.CharField(help_text="Shown once; stored by the agent.")


class EnrolmentTokenRequest(serializers.Serializer[Any]):
    """An enrolment token to create, for one or more machines."""

    name = NameField(
        allow_blank=True,
        default="",
        help_text="Name of the machine that may join, or rejoin while offline; empty: any new machine.",
    )
    labels = LabelsField(default=dict)
    uses = serializers.IntegerField(
        min_value=1,
        max_value=MOST_USES,
        default=1,
        help_text="How many machines may join with it. One that rejoins under its name or was removed does not count.",
    )
    lifetime_s = serializers.IntegerField(min_value=1, max_value=30 * DAY_S, default=3600)
    remove_after_s = serializers.IntegerField(
        min_value=1,
        max_value=365 * DAY_S,
        allow_null=True,
        default=None,
        help_text="How long a machine that joined with it may be offline before it is removed; null: no limit.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """A token with a name is for one machine."""
        if attrs["name"] and attrs["uses"] > 1:
            found, expected = attrs["uses"], f"1 with name {attrs['name']!r}, or no name"
            raise serializers.ValidationError({"uses": f"found {found}, expected {expected}"})
        return attrs


class EnrolmentTokenRow(serializers.ModelSerializer[EnrolmentToken]):
    """An enrolment token, without its secret."""

    created_by = serializers.CharField(source="created_by.username", default=None, read_only=True, allow_null=True)
    labels = serializers.DictField(child=serializers.CharField(), read_only=True)
    remove_after_s = serializers.SerializerMethodField()
    is_valid_now = serializers.SerializerMethodField()

    class Meta:
        model = EnrolmentToken
        fields = (
            *("id", "name", "labels", "uses", "used", "used_at", "created_by", "created_at", "expires_at"),
            *("revoked_at", "remove_after_s", "is_valid_now"),
        )
        read_only_fields = fields

    @extend_schema_field(serializers.FloatField(allow_null=True))
    def get_remove_after_s(self, token: EnrolmentToken) -> float | None:
        """How long its machines may be offline before they are removed."""
        return token.remove_after.total_seconds() if token.remove_after else None

    @extend_schema_field(serializers.BooleanField())
    def get_is_valid_now(self, token: EnrolmentToken) -> bool:
        """Whether a machine can join with it, or join again."""
        is_usable = token.used < token.uses or token.uses > 1
        return is_usable and token.revoked_at is None and token.expires_at > timezone.now()


class EnrolmentTokenReply(serializers.Serializer[Any]):
    """A new enrolment token with its secret, which is shown only once."""

    id = serializers.IntegerField(help_text="To revoke it: DELETE agents/enrolment-tokens/ID.")
    token = serializers.CharField()
    expires_at = serializers.DateTimeField()
    command = serializers.CharField(help_text="Command to run on the machine.")
