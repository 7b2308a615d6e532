"""REST views of scenarios and simulations."""

from typing import Any, TypedDict

import django_filters
from celery import current_app
from django.db import transaction
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from controlplane.api.actions import quota_problem, submitting_team
from controlplane.api.filters import StrictFilters
from controlplane.api.problems import FieldError, Problem
from controlplane.api.schema import problem_responses
from controlplane.api.views.base import ApiDetailView, ApiListView, ApiView, user_of
from controlplane.jobs.models import Job
from controlplane.jobs.roles import Role
from controlplane.jobs.selectors import jobs
from controlplane.jobs.viewing import visible
from controlplane.people.models import Team
from controlplane.people.quotas import QuotaExceeded, check_simulation
from controlplane.runtime.tasks import SIMULATE
from controlplane.simulator.errors import ScenarioError, SimulationError
from controlplane.simulator.scenario import Scenario
from controlplane.simulator.scenarios import scenarios
from controlplane.simulator.variations import Variation
from controlplane.telemetry.models import Simulation
from controlplane.telemetry.simulations import simulation_cancel, simulation_figures, simulation_runs, simulation_submit

MAX_SEED = 2**63 - 1

TEAM = OpenApiParameter(
    "team",
    OpenApiTypes.STR,
    description="The team that owns the simulation; default: the recorded job's, or the first you joined.",
)


class SimulationFilter(django_filters.FilterSet):
    """``?team=vision``."""

    team = django_filters.CharFilter(field_name="team__name", max_length=60)

    class Meta:
        model = Simulation
        fields = ("team",)


class ScenarioRow(serializers.Serializer[Scenario]):
    """A scenario, with the policies that it compares."""

    name = serializers.CharField(read_only=True)
    title = serializers.CharField(read_only=True)
    story = serializers.CharField(read_only=True)
    workers = serializers.IntegerField(source="spec.workers", read_only=True)
    servers = serializers.IntegerField(source="spec.servers", read_only=True)
    policies = serializers.ListField(child=serializers.CharField(), read_only=True)
    baseline = serializers.CharField(read_only=True)


class SimulationRow(serializers.ModelSerializer[Simulation]):
    """A simulation in a list."""

    submitted_by = serializers.CharField(source="submitted_by.username", default=None, read_only=True, allow_null=True)
    team = serializers.CharField(
        source="team.name",
        default=None,
        read_only=True,
        allow_null=True,
        help_text="The team that owns it; null: none, all users see it.",
    )
    policies = serializers.ListField(child=serializers.CharField(), read_only=True)
    variation = serializers.DictField(read_only=True, help_text="Differences from the scenario.")
    state = serializers.CharField(read_only=True, help_text="queued, running, succeeded, failed or cancelled.")
    total = serializers.SerializerMethodField()

    class Meta:
        model = Simulation
        fields: tuple[str, ...] = (
            *("id", "scenario", "policies", "seed", "variation", "state", "reason", "done", "total"),
            *("submitted_by", "team", "created_at", "started_at", "finished_at"),
        )
        read_only_fields = fields

    def get_total(self, row: Simulation) -> int:
        """Number of compared policies."""
        return len(row.policies)


class SimulatedRun(TypedDict):
    """One simulated policy and the job that holds its series."""

    policy: str
    job: int


class SimulationDocument(SimulationRow):
    """One simulation with its outcomes so far."""

    outcomes = serializers.ListField(child=serializers.DictField(), read_only=True)
    paper = serializers.SerializerMethodField()
    runs = serializers.SerializerMethodField()

    class Meta(SimulationRow.Meta):
        fields = (*SimulationRow.Meta.fields, "outcomes", "paper", "runs")
        read_only_fields = fields

    @extend_schema_field({"type": "array", "items": {"type": "object", "additionalProperties": True}})
    def get_paper(self, row: Simulation) -> list[dict[str, object]]:
        """The scenario's figures in its paper, compared with the outcomes."""
        return simulation_figures(row)

    def get_runs(self, row: Simulation) -> list[SimulatedRun]:
        """Each policy's run as a finished job, with metrics, decisions and figures like any job."""
        return [SimulatedRun(policy=job.policy, job=job.pk) for job in simulation_runs(row)]


class SimulationRequest(serializers.Serializer[Any]):
    """What to simulate."""

    scenario = serializers.CharField(
        max_length=100, help_text="Name of the scenario, or job-7 to use the machines recorded in the finished job 7."
    )
    policies = serializers.ListField(
        child=serializers.CharField(max_length=200),
        required=False,
        default=list,
        max_length=50,
        help_text="Names of the scenario's policies, or registered policies joined by +; empty: all of the scenario's. "
        "The policy named recorded repeats a recorded job's own policies and shows the prediction error.",
    )
    seed = serializers.IntegerField(required=False, default=0, min_value=0, max_value=MAX_SEED)
    workers = serializers.IntegerField(
        required=False, help_text="Additional workers copy the fastest one; fewer workers drop the slowest."
    )
    bandwidth = serializers.FloatField(required=False, help_text="Factor for the bandwidth of all links and servers.")
    global_batch = serializers.IntegerField(required=False, help_text="Samples per iteration over all workers.")


class ScenariosView(ApiView):
    """Scenarios."""

    @extend_schema(responses=ScenarioRow(many=True))
    def get(self, request: Request) -> Response:
        """All scenarios that can be simulated, with their policies."""
        rows = [ScenarioRow(one).data | {"policies": list(one.policies)} for one in scenarios().values()]
        return Response(rows)


class SimulationsView(ApiListView[Simulation]):
    """List simulations."""

    takes = {"POST": (TEAM.name,)}
    write_role = Role.OPERATOR
    writes_for_teams = True
    serializer_class = SimulationRow
    filterset_class = SimulationFilter
    filter_backends = (StrictFilters,)
    queryset = Simulation.objects.none()

    def get_queryset(self) -> Any:
        """Those that the user may see."""
        return visible(Simulation.objects.select_related("submitted_by", "team")).order_by("-id")

    @extend_schema(
        request=SimulationRequest,
        parameters=[TEAM, OpenApiParameter("Location", OpenApiTypes.URI, OpenApiParameter.HEADER, response=[202])],
        responses={202: SimulationDocument, **problem_responses(400, 409)},
    )
    def post(self, request: Request) -> Response:
        """Start a simulation. Its progress and outcomes are read from the simulation's URL."""
        serializer = SimulationRequest(data=request.data)
        serializer.is_valid(raise_exception=True)
        try:
            with transaction.atomic():
                recorded = _recorded(serializer.validated_data["scenario"])
                team = _owner(request, recorded)
                check_simulation(user=user_of(request), team=team)
                rest = dict(serializer.validated_data)
                changed = {name: rest.pop(name) for name in Variation.__struct_fields__ if name in rest}
                row = simulation_submit(**rest, variation=Variation(**changed), user=user_of(request), team=team)
                transaction.on_commit(lambda: current_app.send_task(SIMULATE))
        except QuotaExceeded as exceeded:
            raise quota_problem(exceeded) from None
        except ScenarioError as error:
            fault = FieldError(field=error.field, found=error.found, expected=error.cure)
            raise Problem(400, str(error), errors=[fault]) from None
        except SimulationError as error:
            raise Problem(400, str(error)) from None
        location = reverse("api:simulation", args=[row.pk], request=request)
        return Response(SimulationDocument(row).data, status=202, headers={"Location": location})


def _recorded(scenario: str) -> Job | None:
    """The recorded job whose machines are simulated, if the user may see it."""
    kind, _, number = scenario.partition("-")
    if kind != "job" or not number.isdecimal() or len(number) > 17:
        return None
    job = jobs().filter(pk=int(number)).first()
    if job is None:
        expected = f"the ID of a finished job (job {number} does not exist)"
        fault = FieldError(field="scenario", found=scenario, expected=expected)
        raise Problem(400, f"scenario: found {scenario}, expected {expected}", errors=[fault])
    return job


def _owner(request: Request, recorded: Job | None) -> Team | None:
    """The team that will own it: the team of the recorded job if there is one."""
    name = request.query_params.get("team") or None
    if recorded is not None and recorded.team is not None:
        if name not in (None, recorded.team.name):
            expected = f"{recorded.team.name}, which owns the recorded {recorded}"
            fault = FieldError(field="team", found=name, expected=expected)
            raise Problem(400, f"team: found {name}, expected {expected}", errors=[fault])
        name = recorded.team.name
    return submitting_team(user_of(request), name)


class SimulationView(ApiDetailView[Simulation]):
    """One simulation, with its progress and outcomes."""

    serializer_class = SimulationDocument
    queryset = Simulation.objects.select_related("submitted_by", "team")


class SimulationCancelView(ApiView):
    """Cancellation of a simulation."""

    write_role = Role.OPERATOR

    @extend_schema(request=None, responses={202: SimulationDocument, **problem_responses(404, 409)})
    def post(self, request: Request, pk: int) -> Response:
        """Cancel a simulation. Stored outcomes are kept; the current run ends within a second."""
        if not simulation_cancel(pk=pk, user=user_of(request)):
            row = Simulation.objects.filter(pk=pk).first()
            if row is None:
                raise Problem(404, f"simulation {pk} does not exist")
            raise Problem(409, f"simulation {pk} is already {row.state}")
        return Response(SimulationDocument(Simulation.objects.get(pk=pk)).data, status=202)
