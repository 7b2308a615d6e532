"""Serializers of errors in the format of RFC 9457."""

from typing import Any

from rest_framework import serializers


class FieldErrorRow(serializers.Serializer[Any]):
    """An invalid field."""

    field = serializers.CharField(allow_blank=True)
    found = serializers.JSONField()
    expected = serializers.CharField()


class ProblemDocument(serializers.Serializer[Any]):
    """RFC 9457 problem+json. The first invalid field's members are repeated at the top level."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField()
    trace_id = serializers.CharField(required=False)
    field = serializers.CharField(required=False, allow_blank=True)
    found = serializers.JSONField(required=False)
    expected = serializers.CharField(required=False)
    errors = FieldErrorRow(many=True, required=False)
