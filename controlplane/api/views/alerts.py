"""REST views of alerts, silences and deliveries. Rules and targets are in ``alert_rules``."""

from typing import Any

import django_filters
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.alerts.evaluation import Stage
from controlplane.alerts.models import Alert, Delivery, Rule, Silence
from controlplane.alerts.rules import SEVERITIES
from controlplane.alerts.services import delivery_resend, silence_create, silence_end
from controlplane.api.filters import CountFilter, StrictFilters
from controlplane.api.problems import FieldError, Problem
from controlplane.api.schema import problem_responses
from controlplane.api.serializers.alerts import AlertRow, DeliveryRow, NotificationsReply, SilenceRequest, SilenceRow
from controlplane.api.views.base import ApiListView, ApiView, user_of
from controlplane.jobs.models import Job
from controlplane.jobs.roles import Role, operates
from controlplane.jobs.viewing import limits, visible

LATEST = 20


class AlertFilter(django_filters.FilterSet):
    """``?stage=firing&job=7``."""

    stage = django_filters.ChoiceFilter(choices=[(str(stage), str(stage)) for stage in Stage])
    severity = django_filters.ChoiceFilter(choices=[(name, name) for name in SEVERITIES])
    job = CountFilter(field_name="job_id")

    class Meta:
        model = Alert
        fields = ("kind",)


class AlertsView(ApiListView[Alert]):
    """Alerts."""

    serializer_class = AlertRow
    filter_backends = (StrictFilters,)
    filterset_class = AlertFilter
    queryset = Alert.objects.none()

    def get_queryset(self) -> Any:
        """The rows that the user may see."""
        return visible(Alert.objects.order_by("-pk"), "job__team")


class NotificationsView(ApiView):
    """The alerts that pages show."""

    @extend_schema(responses=NotificationsReply)
    def get(self, request: Request) -> Response:
        """The number of firing alerts that are not silenced, and the latest of them."""
        rows = visible(Alert.objects.filter(stage=Stage.FIRING, silenced=False), "job__team")
        rows = rows.order_by("-fired_at", "-pk")
        return Response(NotificationsReply({"firing": rows.count(), "latest": rows[:LATEST]}).data)


class SilencesView(ApiListView[Silence]):
    """Silences."""

    write_role = Role.OPERATOR
    writes_for_teams = True
    serializer_class = SilenceRow
    queryset = Silence.objects.none()

    def get_queryset(self) -> Any:
        """The rows that the user may see."""
        return visible(Silence.objects.select_related("rule").order_by("-until", "-pk"), "job__team")

    @extend_schema(request=SilenceRequest, responses={201: SilenceRow})
    def post(self, request: Request) -> Response:
        """Silence these alerts for the given number of minutes. They are still listed.

        With teams, users who are not admins must name a job.
        """
        requested = SilenceRequest(data=request.data)
        requested.is_valid(raise_exception=True)
        silence: dict[str, Any] = requested.validated_data
        rule = Rule.objects.filter(name=silence["rule"]).first() if silence["rule"] else None
        if silence["rule"] and rule is None:
            raise _unknown("rule", silence["rule"], "the name of a rule")
        job = visible(Job.objects.all()).filter(pk=silence["job"]).first() if silence["job"] else None
        if silence["job"] and job is None:
            raise _unknown("job", silence["job"], "the ID of a job")
        _check_operates(request, job)
        if job is None and limits() is not None:  # labels and rules are the same in all teams
            raise Problem(
                403,
                "with teams, only admins can silence alerts without a job: give the job, or ask an admin",
            )
        row = silence_create(
            until=silence["until"],
            actor=user_of(request).get_username(),
            rule=rule,
            job=job,
            labels=dict(silence["labels"]),
            reason=silence["reason"],
        )
        return Response(SilenceRow(row).data, status=201)


class SilenceView(ApiView):
    """One silence."""

    write_role = Role.OPERATOR
    writes_for_teams = True

    @extend_schema(request=None, responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        """End a silence: notifications are sent again."""
        row = get_object_or_404(visible(Silence.objects.select_related("job"), "job__team"), pk=pk)
        _check_operates(request, row.job)
        silence_end(row=row, actor=user_of(request).get_username())
        return Response(status=204)


class DeliveryFilter(django_filters.FilterSet):
    """``?state=failed&target=oncall``."""

    state = django_filters.ChoiceFilter(choices=Delivery.State.choices)
    target = django_filters.CharFilter(field_name="target__name", max_length=100)
    alert = CountFilter(field_name="alert_id")

    class Meta:
        model = Delivery
        fields = ()


class DeliveriesView(ApiListView[Delivery]):
    """Messages to targets, and their results."""

    serializer_class = DeliveryRow
    filter_backends = (StrictFilters,)
    filterset_class = DeliveryFilter
    queryset = Delivery.objects.none()

    def get_queryset(self) -> Any:
        """The rows that the user may see."""
        return visible(Delivery.objects.select_related("target").order_by("-pk"), "alert__job__team")


class DeliveryResendView(ApiView):
    """Another attempt of a message."""

    write_role = Role.OPERATOR
    writes_for_teams = True

    @extend_schema(request=None, responses={202: DeliveryRow, **problem_responses(409)})
    def post(self, request: Request, pk: int) -> Response:
        """Queue a delivery that has failed, with the same key."""
        rows = visible(Delivery.objects.select_related("target", "alert__job"), "alert__job__team")
        row = get_object_or_404(rows, pk=pk)
        _check_operates(request, row.alert.job if row.alert else None)
        if not delivery_resend(row=row, actor=user_of(request).get_username()):
            raise Problem(409, f"delivery {pk} is {row.state}; only failed deliveries can be sent again")
        row.refresh_from_db()
        return Response(DeliveryRow(row).data, status=202)


def _unknown(field: str, found: object, expected: str) -> Problem:
    fault = FieldError(field=field, found=found, expected=expected)
    return Problem(400, f"{field}: expected {expected}", errors=[fault])


def _check_operates(request: Request, job: Job | None) -> None:
    """Require the role operator: in the job's team if a team owns it."""
    if not operates(user_of(request))(job.team_id if job else None):
        where = "in the team of this job" if job and job.team_id else "in the installation"
        raise Problem(403, f"this requires the role operator {where}")
