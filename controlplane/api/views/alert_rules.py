"""REST views of alert rules, singly and as a document, and of their targets."""

from collections.abc import Iterable
from typing import Any

import yaml
from django.conf import settings
from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.alerts import services
from controlplane.alerts.models import Rule, Target
from controlplane.alerts.rules import Rule as RuleDocument
from controlplane.alerts.rules import RuleSet, parse_rule, parse_rules, rules_document
from controlplane.alerts.targets import Address, TargetDocument, parse_target
from controlplane.api.problems import Problem
from controlplane.api.schema import problem_responses, struct_bodies
from controlplane.api.serializers.alerts import DeliveryRow, ImportReply, NewTarget, RuleRow, TargetRow
from controlplane.api.views.base import ApiListView, ApiView, user_of
from controlplane.jobs.documents import check_plain
from controlplane.jobs.sealing import SealBroken


class RulesView(ApiListView[Rule]):
    """Rules."""

    serializer_class = RuleRow
    queryset = Rule.objects.prefetch_related("targets").order_by("name")

    @extend_schema(request=struct_bodies(RuleDocument), responses={201: RuleRow})
    def post(self, request: Request) -> Response:
        """Create a rule. Admins only."""
        row = services.rule_save(rule=parse_rule(_plain(request)), actor=_actor(request))
        return Response(RuleRow(row).data, status=201)


class RuleView(ApiView):
    """One rule."""

    @extend_schema(responses=RuleRow)
    def get(self, request: Request, pk: int) -> Response:
        """A rule."""
        return Response(RuleRow(get_object_or_404(Rule, pk=pk)).data)

    @extend_schema(request=struct_bodies(RuleDocument), responses=RuleRow)
    def put(self, request: Request, pk: int) -> Response:
        """Replace a rule. Admins only."""
        row = get_object_or_404(Rule, pk=pk)
        row = services.rule_save(rule=parse_rule(_plain(request)), actor=_actor(request), row=row)
        return Response(RuleRow(Rule.objects.get(pk=row.pk)).data)

    @extend_schema(request=None, responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        """Remove a rule; its alerts are resolved. Admins only."""
        services.rule_remove(row=get_object_or_404(Rule, pk=pk), actor=_actor(request))
        return Response(status=204)


class DocumentView(ApiView):
    """All rules as one document."""

    @extend_schema(responses={(200, "application/yaml"): struct_bodies(RuleSet)["application/yaml"]})
    def get(self, request: Request) -> HttpResponse:
        """All rules as YAML, in the format of imports. Targets are named only, since their addresses are secrets."""
        return HttpResponse(rules_yaml(), content_type="application/yaml")

    @extend_schema(request=struct_bodies(RuleSet), responses=ImportReply)
    def put(self, request: Request) -> Response:
        """Replace all rules by these, in JSON or YAML. Rules that are not in the document are removed. Admins only."""
        done = services.rules_import(rules=parse_rules(_plain(request)), actor=_actor(request))
        return Response(ImportReply(done).data)


class TargetsView(ApiListView[Target]):
    """Targets."""

    serializer_class = TargetRow
    queryset = Target.objects.order_by("name")

    @extend_schema(request=struct_bodies(TargetDocument), responses={201: NewTarget})
    def post(self, request: Request) -> Response:
        """Create a target. Its signing secret is shown only in this response. Admins only."""
        document, address = parse_target(_plain(request))
        row, address = services.target_save(document=document, address=address, actor=_actor(request))
        return Response(TargetRow(row).data | {"secret": address.secret}, status=201)


class TargetView(ApiView):
    """One target."""

    @extend_schema(request=struct_bodies(TargetDocument), responses=NewTarget)
    def put(self, request: Request, pk: int) -> Response:
        """Change a target; an omitted address or secret is kept if it can be decrypted. Admins only."""
        row = get_object_or_404(Target, pk=pk)
        before = _before(row)
        document, address = parse_target(_plain(request), before)
        row, address = services.target_save(document=document, address=address, actor=_actor(request), row=row)
        is_new = before is None or address.secret != before.secret
        return Response(TargetRow(row).data | {"secret": address.secret if is_new else ""})

    @extend_schema(request=None, responses={204: None, **problem_responses(409)})
    def delete(self, request: Request, pk: int) -> Response:
        """Remove a target that no rule uses. Admins only."""
        try:
            services.target_remove(row=get_object_or_404(Target, pk=pk), actor=_actor(request))
        except services.InUse as error:
            raise Problem(409, str(error)) from None
        return Response(status=204)


class TargetTestView(ApiView):
    """A test message to a target."""

    @extend_schema(request=None, responses={202: DeliveryRow})
    def post(self, request: Request, pk: int) -> Response:
        """Queue a test message; its result is in the list of deliveries. Admins only."""
        target = get_object_or_404(Target, pk=pk)
        row = services.target_test(row=target, actor=_actor(request), base_url=settings.PACELINE_URL)
        return Response(DeliveryRow(row).data, status=202)


def _before(row: Target) -> Address | None:
    """The stored address of a changed target; None if it cannot be decrypted, so that a new one is required."""
    try:
        return services.address_of(row)
    except SealBroken:
        return None


def rules_yaml() -> str:
    """The document of all rules."""
    rows = Rule.objects.prefetch_related("targets").order_by("name")
    return yaml_of(row.document for row in rows)


def yaml_of(rules: Iterable[RuleDocument]) -> str:
    """The document of these rules."""
    return str(yaml.safe_dump(rules_document(rules), sort_keys=False, allow_unicode=True))


def _plain(request: Request) -> Any:
    """The body.

    Raises:
        SpecError: if it contains characters that the database cannot store.
    """
    check_plain(request.data)
    return request.data


def _actor(request: Request) -> str:
    return user_of(request).get_username()
