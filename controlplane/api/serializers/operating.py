"""Serializers of findings, and of users' requests to a running job."""

from typing import Any

import msgspec
from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.jobs.flag_notes import notes_on
from controlplane.jobs.models import Flag
from controlplane.jobs.requests import Request, Stage


class FlagRow(serializers.ModelSerializer[Flag]):
    """A finding about a worker, a server or the job."""

    evidence = serializers.JSONField(read_only=True)
    note = serializers.SerializerMethodField()

    class Meta:
        model = Flag
        fields = (
            *("id", "key", "subject", "rank", "kind", "persistence", "sentence", "evidence"),
            *("opened_at", "closed_at", "closing_reason", "note"),
        )
        read_only_fields = fields

    @extend_schema_field({"type": "object", "nullable": True, "additionalProperties": True})
    def get_note(self, flag: Flag) -> dict[str, Any] | None:
        """Who acknowledged or muted it, when, and until when."""
        note = notes_on([flag], timezone.now()).get(flag.pk)
        return None if note is None else msgspec.to_builtins(note)


class MuteRequest(serializers.Serializer[Any]):
    """How long a finding is muted."""

    minutes = serializers.IntegerField(min_value=0, max_value=7 * 24 * 60)


class RequestRow(serializers.Serializer[Request]):
    """A user's request to a job's engine."""

    id = serializers.IntegerField(help_text="ID of the audit entry.")
    at = serializers.DateTimeField()
    actor = serializers.CharField()
    action = serializers.CharField()
    about = serializers.CharField(help_text="w0 is the worker of rank 0, s1 the server of index 1; empty: the job.")
    detail = serializers.DictField()
    stage = serializers.ChoiceField(choices=[stage.value for stage in Stage])
    reason = serializers.CharField(help_text="Response of the engine; empty until it has responded.")
