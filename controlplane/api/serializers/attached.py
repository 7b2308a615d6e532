"""Serializers of attached jobs and their tokens."""

from typing import Any

from rest_framework import serializers

from controlplane.jobs.models import JobToken
from controlplane.jobs.tokens import MAX_GRACE_S


class TokenGrace(serializers.Serializer[Any]):
    """How long earlier tokens remain valid."""

    grace_s = serializers.IntegerField(
        min_value=0, max_value=MAX_GRACE_S, default=0, help_text="0: earlier tokens are revoked immediately."
    )


class LauncherEnd(serializers.Serializer[Any]):
    """How the launcher of a job's ranks exited."""

    exit_code = serializers.IntegerField(
        min_value=-255,
        max_value=255,
        help_text="0: the job has succeeded. Negative: the number of the signal that ended it.",
    )
    reason = serializers.CharField(
        max_length=2000, default="", allow_blank=True, help_text="One sentence, such as the last line of its stderr."
    )


class NewJobToken(serializers.Serializer[Any]):
    """A new token of a job with its secret, which is shown only once."""

    job = serializers.IntegerField()
    token = serializers.CharField(help_text="For PACELINE_TOKEN. Only its hash is stored.")
    grace_s = serializers.IntegerField(help_text="How long earlier tokens remain valid.")


class JobTokenRow(serializers.ModelSerializer[JobToken]):
    """A token of a job's ranks, without its secret."""

    class Meta:
        model = JobToken
        fields = ("id", "created_at", "created_by", "ends_at")
        read_only_fields = fields


class JobTokens(serializers.Serializer[Any]):
    """A job's valid tokens."""

    job = serializers.IntegerField()
    tokens = JobTokenRow(many=True)
