"""REST views of machines, enrolment and enrolment tokens."""

from typing import Any

import django_filters
from django.contrib.auth.models import User
from django.db import transaction
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.api.enrolment import enrol, invite
from controlplane.api.filters import StrictFilters
from controlplane.api.machines import remove_machine
from controlplane.api.problems import Problem
from controlplane.api.rotations import rotate_credential
from controlplane.api.schema import problem_responses
from controlplane.api.serializers.fleet import (
    AgentRow,
    EnrolmentTokenReply,
    EnrolmentTokenRequest,
    EnrolmentTokenRow,
    EnrolReply,
    EnrolRequest,
)
from controlplane.api.views.base import ApiDetailView, ApiListView, ApiView, OpenView, user_of
from controlplane.fleet import selectors
from controlplane.fleet.models import Agent, EnrolmentToken
from controlplane.fleet.services import EnrolmentRefused, NameTaken, token_revoke
from controlplane.fleet.token_review import CannotReview, TokenRefused
from controlplane.jobs.roles import Role
from controlplane.jobs.services import audit
from controlplane.jobs.viewing import visible


class AgentFilter(django_filters.FilterSet):
    """``?state=online``."""

    class Meta:
        model = Agent
        fields = ("state", "name")


class AgentsView(ApiListView[Agent]):
    """Machines that have joined."""

    serializer_class = AgentRow
    filterset_class = AgentFilter
    filter_backends = (StrictFilters,)
    queryset = Agent.objects.none()

    def get_queryset(self) -> Any:
        """The rows that the user may see."""
        return visible(selectors.agents())


class AgentView(ApiDetailView[Agent]):
    """One machine."""

    writes_for_installation = True
    """An admin of its team cannot make the token with which it would join again."""
    serializer_class = AgentRow
    queryset = selectors.agents()

    @extend_schema(request=None, responses={204: None, **problem_responses(404, 409)})
    def delete(self, request: Request, pk: int) -> Response:
        """Remove an offline machine that holds no slots, with its credential. Admins of the installation only."""
        remove_machine(agent=get_object_or_404(Agent, pk=pk), actor=user_of(request).get_username())
        return Response(status=204)


class AgentRotateView(ApiView):
    """Rotation of a machine's credential."""

    write_role = Role.OPERATOR

    @extend_schema(request=None, responses={202: AgentRow, **problem_responses(409, 503)})
    def post(self, request: Request, pk: int) -> Response:
        """Rotate the agent's credential. The old one is revoked once the agent has acknowledged the new one."""
        rotate_credential(agent=get_object_or_404(Agent, pk=pk), user=user_of(request))
        return Response(AgentRow(selectors.agents().get(pk=pk)).data, status=202)


class EnrolView(OpenView):
    """Enrolment of a machine."""

    @extend_schema(request=EnrolRequest, responses={201: EnrolReply, **problem_responses(403, 409, 503)})
    def post(self, request: Request) -> Response:
        """Join with an enrolment token or a pod's service-account token. The reply contains the agent's credential."""
        serializer = EnrolRequest(data=request.data)
        serializer.is_valid(raise_exception=True)
        try:
            enrolment = enrol(token=serializer.validated_data["token"], name=serializer.validated_data["name"])
        except NameTaken as error:
            raise Problem(409, str(error)) from None
        except (EnrolmentRefused, TokenRefused) as error:
            raise Problem(403, str(error)) from None
        except CannotReview as error:
            raise Problem(503, str(error), headers={"Retry-After": "5"}) from None
        reply = EnrolReply({"agent": enrolment.agent, "credential": enrolment.credential})
        return Response(reply.data, status=201)


class EnrolmentTokensView(ApiListView[EnrolmentToken]):
    """Enrolment tokens."""

    serializer_class = EnrolmentTokenRow
    queryset = EnrolmentToken.objects.select_related("created_by").order_by("-pk")

    @extend_schema(request=EnrolmentTokenRequest, responses={201: EnrolmentTokenReply})
    def post(self, request: Request) -> Response:
        """Create an enrolment token that lets up to ``uses`` machines join. Admins only."""
        serializer = EnrolmentTokenRequest(data=request.data)
        serializer.is_valid(raise_exception=True)
        assert isinstance(request.user, User)  # the permission admitted only users
        invitation = invite(user=request.user, **serializer.validated_data)
        return Response(EnrolmentTokenReply(invitation).data, status=201)


class EnrolmentTokenView(ApiView):
    """One invitation."""

    @extend_schema(request=None, responses={204: None, **problem_responses(404, 409)})
    def delete(self, request: Request, pk: int) -> Response:
        """Revoke an enrolment token. Machines that joined with it remain. Admins only."""
        token = get_object_or_404(EnrolmentToken, pk=pk)
        with transaction.atomic():
            if not token_revoke(token.pk):
                raise Problem(409, f"enrolment token {pk} was already revoked")
            audit(actor=user_of(request).get_username(), action="agent-uninvite", subject=f"enrolment token {pk}")
        return Response(status=204)
