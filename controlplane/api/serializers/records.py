"""Serializers of decisions, log entries, measurements and placement."""

from typing import Any

import msgspec
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.jobs.models import Decision
from controlplane.telemetry.metrics import EVALUATION_METRICS, METRICS
from controlplane.telemetry.models import LogLine, RawEvent

MAX_INT = 2**31 - 1


class DecisionRow(serializers.ModelSerializer[Decision]):
    """A decision of the engine."""

    payload = serializers.JSONField(read_only=True)

    class Meta:
        model = Decision
        fields = ("id", "incarnation", "sequence", "at", "kind", "cause", "reason", "iteration", "payload")
        read_only_fields = fields


class EventRow(serializers.ModelSerializer[RawEvent]):
    """An entry of a job's log."""

    event = serializers.SerializerMethodField()

    class Meta:
        model = RawEvent
        fields = ("id", "incarnation", "stream_id", "kind", "event")
        read_only_fields = fields

    @extend_schema_field({"type": "object", "additionalProperties": True})
    def get_event(self, row: RawEvent) -> Any:
        """The event as appended, without its secret."""
        event = msgspec.msgpack.decode(bytes(row.payload))
        if row.kind == "job-submitted":
            event.pop("salt", None)
        return msgspec.to_builtins(event, str_keys=True)


class LogLineRow(serializers.ModelSerializer[LogLine]):
    """A log line of a process."""

    process = serializers.CharField(help_text="w0 is the worker of rank 0, s1 the server of index 1.")

    class Meta:
        model = LogLine
        fields = ("id", "at", "level", "process", "instance", "text")
        read_only_fields = fields


class MeasurementsQuery(serializers.Serializer[Any]):
    """The selected workers; default: all."""

    worker = serializers.ListField(
        child=serializers.IntegerField(min_value=0, max_value=MAX_INT), default=list, max_length=256
    )


class MetricsQuery(MeasurementsQuery):
    """The selected series."""

    metric = serializers.ListField(
        child=serializers.ChoiceField(
            [*METRICS, *EVALUATION_METRICS],
            error_messages={"invalid_choice": f"one of {', '.join([*METRICS, *EVALUATION_METRICS])}"},
        ),
        min_length=1,
        max_length=20,
    )
    since = serializers.IntegerField(min_value=0, max_value=MAX_INT, default=0, help_text="First iteration.")
    points = serializers.IntegerField(
        min_value=4, max_value=10_000, default=500, help_text="Maximum number of points per series."
    )


class SeriesRow(serializers.Serializer[Any]):
    """One metric of one worker, or of the job as a whole."""

    metric = serializers.CharField()
    unit = serializers.CharField()
    worker = serializers.IntegerField(source="rank", allow_null=True)
    raw_points = serializers.IntegerField(help_text="Before down-sampling.")
    thinned = serializers.BooleanField()
    iterations = serializers.ListField(child=serializers.IntegerField())
    values = serializers.ListField(child=serializers.FloatField())


class MetricsReply(serializers.Serializer[Any]):
    """Series, sorted by rank."""

    job = serializers.IntegerField()
    since = serializers.IntegerField()
    series = SeriesRow(many=True)


class BlockRow(serializers.Serializer[Any]):
    """A slice of the flattened parameters, in elements, and the server that holds it."""

    index = serializers.IntegerField()
    start = serializers.IntegerField()
    stop = serializers.IntegerField()
    server = serializers.IntegerField()


class PlacementReply(serializers.Serializer[Any]):
    """The current placement: which server holds which block."""

    job = serializers.IntegerField()
    version = serializers.IntegerField()
    policy = serializers.CharField()
    at = serializers.DateTimeField()
    reason = serializers.CharField()
    blocks = BlockRow(many=True)
    elements = serializers.DictField(child=serializers.IntegerField(), help_text="Elements per server.")
