"""Serializers of teams, quotas and the queue."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.api.serializers.fields import NameField
from controlplane.api.serializers.jobs import WaitingDocument
from controlplane.jobs.models import Job
from controlplane.people.models import Membership, Team
from controlplane.people.sizes import PATTERN, read_size
from controlplane.people.teams import LEAST_WEIGHT, MOST_WEIGHT

MOST_BYTES = 2**62
MOST = 2**31 - 1


class MemberRow(serializers.ModelSerializer[Membership]):
    """A member of a team."""

    user = serializers.CharField(source="user.username", read_only=True)

    class Meta:
        model = Membership
        fields = ("user", "role", "joined_at")
        read_only_fields = fields


class TeamRow(serializers.ModelSerializer[Team]):
    """A team."""

    members = MemberRow(source="memberships", many=True, read_only=True)

    class Meta:
        model = Team
        fields = ("id", "name", "weight", "created_at", "members")
        read_only_fields = fields


class TeamRequest(serializers.Serializer[Any]):
    """A team to create."""

    name = NameField(max_length=60, help_text="Must not contain a slash, as it is part of URLs.")
    weight = serializers.FloatField(min_value=LEAST_WEIGHT, max_value=MOST_WEIGHT, default=1.0)

    def validate_name(self, name: str) -> str:
        """Reject names that cannot be part of a URL."""
        if "/" in name:
            raise serializers.ValidationError("expected a name without /")
        return name


class WeightRequest(serializers.Serializer[Any]):
    """A team's share of the slots, relative to other teams."""

    weight = serializers.FloatField(min_value=LEAST_WEIGHT, max_value=MOST_WEIGHT)


class MemberRequest(serializers.Serializer[Any]):
    """A member's role."""

    role = serializers.ChoiceField(("member", "operator", "admin"), default="member")


class OwnerRequest(serializers.Serializer[Any]):
    """An owner by name."""

    team = serializers.CharField(
        max_length=60, allow_null=True, help_text="A team, or null: no owner, all users see it."
    )


class OwnerReply(serializers.Serializer[Any]):
    """The owner now."""

    team = serializers.CharField(allow_null=True)


@extend_schema_field(
    {
        "oneOf": [
            {"type": "integer", "minimum": 0, "maximum": MOST_BYTES},
            {"type": "string", "pattern": PATTERN, "maxLength": 40, "example": "10 GB"},
        ]
    }
)
class SizeField(serializers.IntegerField):
    """Bytes, or text with a unit."""

    def to_internal_value(self, data: Any) -> int:
        """The bytes."""
        if isinstance(data, str):
            try:
                data = read_size(data)
            except ValueError as error:
                raise serializers.ValidationError(f"expected {error}") from None
        return int(super().to_internal_value(data))


class Limits(serializers.Serializer[Any]):
    """Maximum at one time; null: no limit. Omitted limits are not changed."""

    slots = serializers.IntegerField(min_value=0, max_value=MOST, allow_null=True, required=False)
    jobs = serializers.IntegerField(min_value=0, max_value=MOST, allow_null=True, required=False)
    workers = serializers.IntegerField(min_value=0, max_value=MOST, allow_null=True, required=False)
    simulations = serializers.IntegerField(min_value=0, max_value=MOST, allow_null=True, required=False)
    stored_bytes = SizeField(
        min_value=0, max_value=MOST_BYTES, allow_null=True, required=False, help_text="In bytes, or as `10 GB`."
    )


class QuotaUsageDocument(serializers.Serializer[Any]):
    """Use and limits of a user or a team."""

    subject = serializers.CharField()
    used = serializers.DictField(child=serializers.IntegerField())
    limits = serializers.DictField(child=serializers.IntegerField(allow_null=True))


class QueueRow(serializers.ModelSerializer[Job]):
    """A job in the queue."""

    job = serializers.IntegerField(source="pk")
    team = serializers.CharField(source="team.name", default=None, allow_null=True)
    waiting = WaitingDocument(read_only=True)

    class Meta:
        model = Job
        fields = ("job", "name", "priority", "team", "created_at", "waiting")
        read_only_fields = fields
