"""Attached jobs, as the API shows and accepts them."""

from typing import Any

from rest_framework import serializers

from controlplane.jobs.models import JobToken
from controlplane.jobs.tokens import MAX_GRACE_S


class TokenGrace(serializers.Serializer[Any]):
    """How long the tokens before a new one stay good."""

    grace_s = serializers.IntegerField(
        min_value=0, max_value=MAX_GRACE_S, default=0, help_text="0: the others end at once."
    )


class LauncherEnd(serializers.Serializer[Any]):
    """How the command ended that had started a job's ranks."""

    exit_code = serializers.IntegerField(
        min_value=-255, max_value=255, help_text="0: the job has succeeded. Negative: the signal that ended it."
    )
    reason = serializers.CharField(
        max_length=2000, default="", allow_blank=True, help_text="One sentence, such as the last line of its errors."
    )


class NewJobToken(serializers.Serializer[Any]):
    """A token of a job's ranks, in clear for this once."""

    job = serializers.IntegerField()
    token = serializers.CharField(help_text="For PACELINE_TOKEN. Only its hash is kept.")
    grace_s = serializers.IntegerField(help_text="So long those before it are good still.")


class JobTokenRow(serializers.ModelSerializer[JobToken]):
    """A token of a job's ranks, without its secret."""

    class Meta:
        model = JobToken
        fields = ("id", "created_at", "created_by", "ends_at")
        read_only_fields = fields


class JobTokens(serializers.Serializer[Any]):
    """The tokens of a job that are good now."""

    job = serializers.IntegerField()
    tokens = JobTokenRow(many=True)
