"""Serializers of policies, workloads and data sets."""

from typing import Any

from rest_framework import serializers


class PolicyRow(serializers.Serializer[Any]):
    """A policy that a job can use."""

    question = serializers.CharField()
    name = serializers.CharField()
    explanation = serializers.CharField()
    paper = serializers.CharField()
    defaults = serializers.DictField()
    schema = serializers.DictField(help_text="JSON schema of its parameters.")
    parts = serializers.DictField(child=serializers.CharField())


class DatasetRow(serializers.Serializer[Any]):
    """A data set that a workload can be trained on."""

    name = serializers.CharField()
    explanation = serializers.CharField()
    defaults = serializers.DictField()
    schema = serializers.DictField(help_text="JSON schema of its options, `workload.data` in a spec.")


class WorkloadRow(serializers.Serializer[Any]):
    """A workload that a job can use."""

    name = serializers.CharField()
    explanation = serializers.CharField()
    defaults = serializers.DictField()
    schema = serializers.DictField(help_text="JSON schema of its options, `workload.options` in a spec.")
    datasets = serializers.ListField(child=serializers.CharField())
    data = DatasetRow(many=True)
