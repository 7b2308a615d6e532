"""Serializers of machine tests, with the medians of machine classes."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.fleet.machine_classes import class_of, compared, emulation_note, failed_links
from controlplane.fleet.models import MachineTest


class TestRequest(serializers.Serializer[Any]):
    """A request to test a machine."""

    __test__ = False

    force = serializers.BooleanField(
        default=False, help_text="Also while jobs run on the machine, which the test slows down."
    )


class ComparedRow(serializers.Serializer[Any]):
    """One measurement."""

    name = serializers.CharField()
    machine = serializers.CharField(
        allow_blank=True, help_text="The other end of a link; empty: a measurement of the machine itself."
    )
    title = serializers.CharField()
    unit = serializers.CharField()
    value = serializers.FloatField()
    median = serializers.FloatField(allow_null=True, help_text="Median of the other machines of its class.")
    others = serializers.IntegerField(help_text="Number of these machines.")
    deviation = serializers.FloatField(allow_null=True, help_text="Relative deviation from the median.")
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
        """Duration of the test; 0 without a result."""
        return float(row.result.get("seconds", 0.0))

    @extend_schema_field(serializers.CharField())
    def get_machine_class(self, row: MachineTest) -> str:
        """The class of the machine."""
        return class_of(row.agent)

    @extend_schema_field(serializers.CharField())
    def get_emulated(self, row: MachineTest) -> str:
        """A note if its slots are emulated; otherwise empty."""
        return emulation_note(row.agent)

    @extend_schema_field(ComparedRow(many=True))
    def get_measured(self, row: MachineTest) -> list[dict[str, Any]]:
        """Each measurement with the median of its class."""
        peers: Sequence[Mapping[str, Any]] = self.context.get("peers", ())
        return [asdict(each) for each in compared(row.result, peers)]

    @extend_schema_field(FailedLink(many=True))
    def get_failed_links(self, row: MachineTest) -> list[dict[str, Any]]:
        """Links that were not measured, and why."""
        return [{"machine": link["machine"], "failure": link["failure"]} for link in failed_links(row.result)]
