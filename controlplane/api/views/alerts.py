"""Alerts, and who is notified: silences and deliveries. Rules and targets are in ``alert_rules``."""

from typing import Any

import django_filters
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane.alerts.evaluation import Stage
from controlplane.alerts.models import Alert, Delivery, Rule, Silence
from controlplane.alerts.rules import SEVERITIES
from controlplane.alerts.services import delivery_resend, silence_create, silence_end
from controlplane.api.filters import CountFilter, StrictFilters
from controlplane.api.problems import FieldError, Problem
from controlplane.api.schema import problem_responses
from controlplane.api.serializers.alerts import AlertRow, DeliveryRow, NewsReply, SilenceRequest, SilenceRow
from controlplane.api.views.base import user_of
from controlplane.jobs.models import Job
from controlplane.jobs.roles import Role

LATEST = 20


class AlertFilter(django_filters.FilterSet):
    """``?stage=firing&job=7``."""

    stage = django_filters.ChoiceFilter(choices=[(str(stage), str(stage)) for stage in Stage])
    severity = django_filters.ChoiceFilter(choices=[(name, name) for name in SEVERITIES])
    job = CountFilter(field_name="job_id")

    class Meta:
        model = Alert
        fields = ("kind",)


class AlertsView(ListAPIView[Alert]):
    """Alerts."""

    serializer_class = AlertRow
    filter_backends = (StrictFilters,)
    filterset_class = AlertFilter
    queryset = Alert.objects.order_by("-pk")


class NewsView(APIView):
    """What pages show and notify of."""

    @extend_schema(responses=NewsReply)
    def get(self, request: Request) -> Response:
        """Alerts that fire now and are not silenced: how many, and the latest of them."""
        rows = Alert.objects.filter(stage=Stage.FIRING, silenced=False).order_by("-fired_at", "-pk")
        return Response(NewsReply({"firing": rows.count(), "latest": rows[:LATEST]}).data)


class SilencesView(ListAPIView[Silence]):
    """Silences."""

    write_role = Role.OPERATOR
    serializer_class = SilenceRow
    queryset = Silence.objects.select_related("rule").order_by("-until", "-pk")

    @extend_schema(request=SilenceRequest, responses={201: SilenceRow})
    def post(self, request: Request) -> Response:
        """Tell nobody of these alerts for so many minutes. They are still listed."""
        asked = SilenceRequest(data=request.data)
        asked.is_valid(raise_exception=True)
        said: dict[str, Any] = asked.validated_data
        rule = Rule.objects.filter(name=said["rule"]).first() if said["rule"] else None
        if said["rule"] and rule is None:
            raise _unknown("rule", said["rule"], "the name of a rule")
        job = Job.objects.filter(pk=said["job"]).first() if said["job"] else None
        if said["job"] and job is None:
            raise _unknown("job", said["job"], "the ID of a job")
        row = silence_create(
            until=said["until"],
            actor=user_of(request).get_username(),
            rule=rule,
            job=job,
            labels=dict(said["labels"]),
            reason=said["reason"],
        )
        return Response(SilenceRow(row).data, status=201)


class SilenceView(APIView):
    """One silence."""

    write_role = Role.OPERATOR

    @extend_schema(request=None, responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        """End it: people are notified again from now on."""
        silence_end(row=get_object_or_404(Silence, pk=pk), actor=user_of(request).get_username())
        return Response(status=204)


class DeliveryFilter(django_filters.FilterSet):
    """``?state=failed&target=oncall``."""

    state = django_filters.ChoiceFilter(choices=Delivery.State.choices)
    target = django_filters.CharFilter(field_name="target__name", max_length=100)
    alert = CountFilter(field_name="alert_id")

    class Meta:
        model = Delivery
        fields = ()


class DeliveriesView(ListAPIView[Delivery]):
    """Messages to targets, and what became of them."""

    serializer_class = DeliveryRow
    filter_backends = (StrictFilters,)
    filterset_class = DeliveryFilter
    queryset = Delivery.objects.select_related("target").order_by("-pk")


class DeliveryResendView(APIView):
    """Another attempt of a message."""

    write_role = Role.OPERATOR

    @extend_schema(request=None, responses={202: DeliveryRow, **problem_responses(409)})
    def post(self, request: Request, pk: int) -> Response:
        """Queue a delivery that has failed, with the same key."""
        row = get_object_or_404(Delivery.objects.select_related("target"), pk=pk)
        if not delivery_resend(row=row, actor=user_of(request).get_username()):
            raise Problem(409, f"delivery {pk} is {row.state}; one that has failed can be sent again")
        row.refresh_from_db()
        return Response(DeliveryRow(row).data, status=202)


def _unknown(field: str, found: object, expected: str) -> Problem:
    fault = FieldError(field=field, found=found, expected=expected)
    return Problem(400, f"{field}: expected {expected}", errors=[fault])
