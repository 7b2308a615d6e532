"""REST views of teams, ownership, quotas and the queue."""

from typing import Any

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.api.machines import note_change
from controlplane.api.problems import Problem
from controlplane.api.schema import problem_responses
from controlplane.api.serializers.teams import (
    Limits,
    MemberRequest,
    MemberRow,
    OwnerReply,
    OwnerRequest,
    QueueRow,
    QuotaUsageDocument,
    TeamRequest,
    TeamRow,
    WeightRequest,
)
from controlplane.api.views.base import ApiDetailView, ApiListView, ApiView, user_of
from controlplane.fleet.models import Agent
from controlplane.fleet.selectors import slots_now
from controlplane.jobs.models import Job
from controlplane.jobs.roles import Role, may, role_of
from controlplane.jobs.waiting import queue_in_order
from controlplane.people import quotas, teams
from controlplane.people.models import Team
from controlplane.telemetry.models import Simulation
from controlplane.telemetry.simulations import simulation_give


def visible_teams(user: User) -> "QuerySet[Team]":
    """All teams for admins of the installation, else the user's own."""
    rows = Team.objects.prefetch_related("memberships__user").order_by("name")
    return rows if may(user, Role.ADMIN) else rows.filter(memberships__user=user)


class TeamsView(ApiListView[Team]):
    """Teams."""

    serializer_class = TeamRow
    queryset = Team.objects.none()

    def get_queryset(self) -> Any:
        """Those of the user; of an admin all."""
        return visible_teams(user_of(self.request))

    @extend_schema(request=TeamRequest, responses={201: TeamRow, **problem_responses(409)})
    def post(self, request: Request) -> Response:
        """Create a team. Admins only."""
        fields = _valid(TeamRequest, request)
        try:
            team = teams.team_create(**fields, actor=_actor(request))
        except teams.TeamRefused as refused:
            raise Problem(409, str(refused)) from None
        return Response(TeamRow(team).data, status=201)


class TeamView(ApiDetailView[Team]):
    """One team."""

    serializer_class = TeamRow
    queryset = Team.objects.prefetch_related("memberships__user")

    @extend_schema(request=WeightRequest, responses=TeamRow)
    def patch(self, request: Request, pk: int) -> Response:
        """Change the team's weight. Admins of the installation only."""
        _check_admin(request)
        team = get_object_or_404(Team, pk=pk)
        teams.team_weigh(team=team, **_valid(WeightRequest, request), actor=_actor(request))
        note_change()
        return Response(TeamRow(team).data)

    @extend_schema(request=None, responses={204: None, **problem_responses(409)})
    def delete(self, request: Request, pk: int) -> Response:
        """Delete a team that owns nothing. Admins of the installation only."""
        _check_admin(request)
        try:
            teams.team_delete(team=get_object_or_404(Team, pk=pk), actor=_actor(request))
        except teams.TeamRefused as refused:
            raise Problem(409, str(refused)) from None
        return Response(status=204)


class MemberView(ApiView):
    """A member of a team: managed by admins of the team."""

    @extend_schema(request=MemberRequest, responses={200: MemberRow, **problem_responses(404)})
    def put(self, request: Request, pk: int, username: str) -> Response:
        """Add a member, or change its role. Admins of the team only."""
        fields = _valid(MemberRequest, request)
        row = teams.member_set(team=_team(pk), user=_user(username), actor=_actor(request), **fields)
        return Response(MemberRow(row).data)

    @extend_schema(request=None, responses={204: None, **problem_responses(404)})
    def delete(self, request: Request, pk: int, username: str) -> Response:
        """End the user's membership. Admins of the team only."""
        if not teams.member_remove(team=_team(pk), user=_user(username), actor=_actor(request)):
            raise Problem(404, f"{username} is not a member of team {_team(pk)}")
        return Response(status=204)


class JobOwnerView(ApiView):
    """The owner of a job."""

    @extend_schema(request=OwnerRequest, responses={200: OwnerReply, **problem_responses(403, 404, 409)})
    def put(self, request: Request, pk: int) -> Response:
        """Assign the job to a team, or release it. Admins of the installation only."""
        return _own(request, get_object_or_404(Job, pk=pk))


class SimulationOwnerView(ApiView):
    """The owner of a simulation."""

    @extend_schema(request=OwnerRequest, responses={200: OwnerReply, **problem_responses(403, 404)})
    def put(self, request: Request, pk: int) -> Response:
        """Assign the simulation and the jobs of its runs to a team, or release them. Admins of the installation
        only.
        """
        return _own(request, get_object_or_404(Simulation, pk=pk))


class AgentOwnerView(ApiView):
    """The owner of a machine."""

    @extend_schema(request=OwnerRequest, responses={200: OwnerReply, **problem_responses(403, 404)})
    def put(self, request: Request, pk: int) -> Response:
        """Assign the machine to a team, so that only its jobs get slots on it, or release it. Admins only."""
        return _own(request, get_object_or_404(Agent, pk=pk))


class QuotasView(ApiView):
    """Quotas and their use."""

    @extend_schema(responses=QuotaUsageDocument(many=True))
    def get(self, request: Request) -> Response:
        """Your own and your teams' quotas; for admins also all individual quotas of users, and those of all teams."""
        return Response(QuotaUsageDocument(quota_usages(user_of(request)), many=True).data)


class UserQuotaView(ApiView):
    """The quota of a user."""

    @extend_schema(request=Limits, responses=QuotaUsageDocument)
    def put(self, request: Request, username: str) -> Response:
        """Set limits of a user, instead of the default. Admins only."""
        user = _user(username)
        quotas.quota_set(user=user, actor=_actor(request), **_valid(Limits, request))
        return Response(QuotaUsageDocument(quotas.quota_usage(user=user)).data)


class TeamQuotaView(ApiView):
    """The quota of a team."""

    @extend_schema(request=Limits, responses=QuotaUsageDocument)
    def put(self, request: Request, name: str) -> Response:
        """Set limits of a team. Admins of the installation only."""
        team = get_object_or_404(Team, name=name)
        quotas.quota_set(team=team, actor=_actor(request), **_valid(Limits, request))
        return Response(QuotaUsageDocument(quotas.quota_usage(team=team)).data)


class DefaultQuotaView(ApiView):
    """The quota of every user without one."""

    @extend_schema(request=Limits, responses=Limits)
    def put(self, request: Request) -> Response:
        """Set the default limits of users without a quota. Admins only."""
        row = quotas.quota_set(actor=_actor(request), **_valid(Limits, request))
        return Response(Limits(row).data)


class QueueView(ApiView):
    """The queue."""

    @extend_schema(responses=QueueRow(many=True))
    def get(self, request: Request) -> Response:
        """Queued jobs that you may see, in the order in which they get slots."""
        return Response(QueueRow(queue_in_order(timezone.now()), many=True).data)


def quota_usages(user: User) -> list[quotas.QuotaUsage]:
    """The quotas that the user may see, the user's own first."""
    others: list[User] = []
    if may(user, Role.ADMIN):
        others = list(User.objects.filter(quota__isnull=False).exclude(pk=user.pk).order_by("username"))
    slots = slots_now()
    found = [quotas.quota_usage(user=each, slots=slots) for each in [user, *others]]
    return found + [quotas.quota_usage(team=team, slots=slots) for team in visible_teams(user)]


def _own(request: Request, row: Job | Agent | Simulation) -> Response:
    if role_of(request.user) != Role.ADMIN:
        raise Problem(403, "only admins of the installation can change owners; ask one")
    name = _valid(OwnerRequest, request)["team"]
    team = None if name is None else visible_teams(user_of(request)).filter(name=name).first()
    if name is not None and team is None:
        raise Problem(404, f"team {name!r} does not exist, or is not visible to you")
    if isinstance(row, Simulation):
        simulation_give(row=row, team=team, actor=_actor(request))
    else:
        try:
            teams.owner_set(row=row, team=team, actor=_actor(request))
        except teams.TeamRefused as refused:
            raise Problem(409, str(refused)) from None
    note_change()
    return Response(OwnerReply({"team": name}).data)


def _check_admin(request: Request) -> None:
    if not may(user_of(request), Role.ADMIN):
        raise Problem(403, "this requires the role admin in the installation; your admin role is only in the team")


def _valid(kind: Any, request: Request) -> dict[str, Any]:
    serializer = kind(data=request.data)
    serializer.is_valid(raise_exception=True)
    return dict(serializer.validated_data)


def _team(pk: int) -> Team:
    return get_object_or_404(Team, pk=pk)


def _user(username: str) -> User:
    return get_object_or_404(User, username=username)


def _actor(request: Request) -> str:
    return user_of(request).get_username()
