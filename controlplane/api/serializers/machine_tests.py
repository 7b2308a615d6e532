"""Tests of machines, beside the medians of their classes."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.fleet.machine_classes import class_of, compared, emulation_note, failed_links
from controlplane.fleet.models import MachineTest


class TestRequest(serializers.Serializer[Any]):
    """A machine is to be tested."""

    __test__ = False

    force = serializers.BooleanField(default=False, help_text="Also while processes of jobs run there: it slows them.")


class ComparedRow(serializers.Serializer[Any]):
    """One measurement."""

    name = serializers.CharField()
    machine = serializers.CharField(allow_blank=True, help_text="The far end of a link; empty: the machine's own.")
    title = serializers.CharField()
    unit = serializers.CharField()
    value = serializers.FloatField()
    median = serializers.FloatField(allow_null=True, help_text="Of the other machines of its class.")
    others = serializers.IntegerField(help_text="How many of those were measured.")
    deviation = serializers.FloatField(allow_null=True, help_text="From the median, as a part of it.")
    sentence = serializers.CharField()
    slow = serializers.BooleanField()


class FailedLink(serializers.Serializer[Any]):
    """A link that was not measured."""

    machine = serializers.CharField()
    failure = serializers.CharField()


class MachineTestRow(serializers.ModelSerializer[MachineTest]):
    """A test; ``peers`` of the context are the results that it is compared with."""

    seconds = serializers.SerializerMethodField()
    machine_class = serializers.SerializerMethodField()
    emulated = serializers.SerializerMethodField()
    measured = serializers.SerializerMethodField()
    failed_links = serializers.SerializerMethodField()

    class Meta:
        model = MachineTest
        fields = (
            *("id", "agent", "state", "requested_by", "requested_at", "forced", "ended_at", "seconds"),
            *("machine_class", "emulated", "measured", "failed_links", "note", "failure"),
        )
        read_only_fields = fields

    @extend_schema_field(serializers.FloatField())
    def get_seconds(self, row: MachineTest) -> float:
        """How long it measured; 0 if it has no result."""
        return float(row.result.get("seconds", 0.0))

    @extend_schema_field(serializers.CharField())
    def get_machine_class(self, row: MachineTest) -> str:
        """The class of the machine."""
        return class_of(row.agent)

    @extend_schema_field(serializers.CharField())
    def get_emulated(self, row: MachineTest) -> str:
        """What that means for the result, if its slots are emulated; empty: they are not."""
        return emulation_note(row.agent)

    @extend_schema_field(ComparedRow(many=True))
    def get_measured(self, row: MachineTest) -> list[dict[str, Any]]:
        """Each measurement beside the median of its class."""
        peers: Sequence[Mapping[str, Any]] = self.context.get("peers", ())
        return [asdict(each) for each in compared(row.result, peers)]

    @extend_schema_field(FailedLink(many=True))
    def get_failed_links(self, row: MachineTest) -> list[dict[str, Any]]:
        """Links that were not measured, and why."""
        return [{"machine": link["machine"], "failure": link["failure"]} for link in failed_links(row.result)]
