"""Reads simulations for pages: the list, one simulation with its outcomes, and the available scenarios."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from django.core.paginator import Page, Paginator
from django.db.models import QuerySet

from controlplane.core.states import JOB_OVER
from controlplane.jobs.models import Job
from controlplane.jobs.viewing import visible
from controlplane.simulator.errors import ScenarioError, SimulationError
from controlplane.simulator.outcome import Outcome, outcome_from
from controlplane.simulator.recorded_run import RECORDED
from controlplane.simulator.scenario import Scenario, check
from controlplane.simulator.scenarios import scenarios
from controlplane.simulator.tables import HEADS, against_paper, against_recorded, rows
from controlplane.simulator.variations import variation_of
from controlplane.telemetry.job_outlines import recorded_outline
from controlplane.telemetry.models import Simulation
from controlplane.telemetry.simulations import simulation_runs, simulation_scenario
from frontend.figures.rows import Simulated, SimulatedOutcome
from frontend.parameters import Query, QueryError, number_of
from frontend.queries.comparison import LEAST, MOST

PER_PAGE = 25

TITLES = tuple("relative to baseline" if head == "against" else head for head in HEADS)

OTHERS_ONLY = "not available: there are no recorded measurements for the changed cluster or global batch."
OWN_MISSING = (
    "not available: also select the policy recorded, which repeats the job's own policies and is compared with the"
    " recorded run."
)
OWN_UNFINISHED = "not available: the simulated run of the policy recorded did not complete."
OWN_FIRST = "available once the run of the policy recorded has completed."


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedJob:
    """The recorded job that is preselected in the form."""

    number: str = ""
    scenario: Scenario | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One policy's row: its cells as text, and the ID of the job with its series."""

    cells: tuple[str, ...]
    job: int | None
    """None if an earlier release stored no series."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A simulation's outcomes so far, as rows of text under ``heads``."""

    heads: tuple[str, ...]
    rows: tuple[Run, ...]
    paper: tuple[str, ...]
    """A sentence for each figure of the paper that the scenario reproduces."""
    recorded: tuple[str, ...] = ()
    """A sentence for each policy of a recorded job: the difference between simulation and recording."""
    not_compared: str = ""
    """Why there is no such comparison."""

    @property
    def compared(self) -> tuple[int, ...]:
        """Jobs to compare: the first ones if there are many, none if there is only one."""
        jobs = [run.job for run in self.rows if run.job is not None][:MOST]
        return tuple(jobs) if len(jobs) >= LEAST else ()


def simulations() -> QuerySet[Simulation]:
    """All simulations that the current user may see, newest first."""
    return visible(Simulation.objects.select_related("submitted_by", "team")).order_by("-id")


def simulation_page(number: str | int, team: str = "") -> Page[Simulation]:
    """One page of them, or of those of one team."""
    rows = simulations().filter(team__name=team) if team else simulations()
    return Paginator(rows, PER_PAGE).get_page(number)


def offered() -> Sequence[Scenario]:
    """Scenarios by name."""
    return sorted(scenarios().values(), key=lambda scenario: scenario.name)


GROUPS: Final = (
    ("a-bsp-multi-tenant", "A-BSP: multi-tenant cluster"),
    ("a-bsp-petuum", "A-BSP: against SSP and ASP"),
    ("a-bsp-physical", "A-BSP: physical cluster"),
    ("a-bsp", "A-BSP: other"),
    ("live-a-bsp", "A-BSP: also with real processes"),
    ("live-lb-bsp", "LB-BSP: also with real processes"),
    ("live-psld", "PSLD: also with real processes"),
    ("live-psp", "PSP: also with real processes"),
    ("lb-bsp-federation", "LB-BSP: federated learning"),
    ("lb-bsp", "LB-BSP: CPU and GPU clusters"),
    ("psld-alexnet", "PSLD: AlexNet"),
    ("psld-resnet50", "PSLD: ResNet50"),
    ("psld-vgg16", "PSLD: VGG16"),
    ("psld", "PSLD: other"),
    ("psp", "PSP: probabilistic barriers"),
    ("", "Demo"),
)
"""Name prefixes of scenarios and their groups; the first match counts."""


def grouped() -> list[tuple[str, list[Scenario]]]:
    """Scenarios by group: the demo first, then by paper."""
    found: dict[str, list[Scenario]] = {}
    for scenario in offered():
        title = next(title for begin, title in GROUPS if scenario.name.startswith(begin))
        found.setdefault(title, []).append(scenario)
    return sorted(found.items(), key=lambda each: (each[0] != GROUPS[-1][1], each[0]))


def offered_by(query: Query) -> Scenario:
    """The scenario of the recorded job in the parameter ``job``.

    Raises:
        QueryError: if it cannot be simulated, with the reason.
    """
    number = number_of(query, "job", "recorded job")
    if number is None:
        raise QueryError("job", "", "the ID of a recorded job")
    try:
        found = recorded_outline(number)
        check(found)
    except ScenarioError as error:
        raise QueryError("job", str(number), error.cure) from None
    return found


def selected_job(query: Query) -> SelectedJob:
    """The preselected job, from the page's query."""
    if not (number := query.get("job", "").strip()):
        return SelectedJob()
    try:
        return SelectedJob(number=number, scenario=offered_by(query))
    except QueryError as error:
        return SelectedJob(number=number, error=str(error))


def recorded_jobs() -> list[tuple[int, str]]:
    """The last finished jobs with progress, as IDs and names."""
    over = visible(Job.objects.all()).filter(simulation=None, state__in=JOB_OVER, iteration__gt=0)
    return list(over.order_by("-id").values_list("id", "name")[:PER_PAGE])


def scenario_of(row: Simulation) -> Scenario | None:
    """Its scenario; None if this release does not have it, or it does not support the variation."""
    try:
        return simulation_scenario(row)
    except SimulationError:
        return None


def varied_of(row: Simulation) -> str:
    """The differences from its scenario, as text; empty if there are none."""
    return variation_of(row.variation).sentence


def result(row: Simulation) -> Result:
    """The table of outcomes, and the comparison with the paper."""
    scenario, found = scenario_of(row), [outcome_from(document) for document in row.outcomes]
    if scenario is None:
        return Result(heads=TITLES, rows=(), paper=())
    paper = tuple(against_paper(scenario, found)) if found else ()
    jobs = simulation_runs(row).values_list("id", flat=True)
    runs = tuple(Run(cells=cells, job=job) for cells, job in zip_longest(rows(scenario, found), jobs))
    recorded = tuple(against_recorded(found))
    return Result(heads=TITLES, rows=runs, paper=paper, recorded=recorded, not_compared=_not_compared(row, found))


def _not_compared(row: Simulation, found: Sequence[Outcome]) -> str:
    """Why no outcome is compared with the recording."""
    if row.variation:
        return OTHERS_ONLY
    if any(outcome.policy == RECORDED for outcome in found):
        return OWN_UNFINISHED
    return OWN_MISSING if row.finished_at else OWN_FIRST


def simulated(row: Simulation) -> Simulated:
    """The data of the simulation's figure."""
    scenario = scenario_of(row)
    fields = ("policy", "iteration_s", "compute", "communication", "waiting", "coordination")
    return Simulated(
        outcomes=tuple(
            SimulatedOutcome(**{name: document[name] for name in fields})
            for document in row.outcomes
            if document["state"] == "succeeded"
        ),
        baseline=scenario.baseline if scenario else "",
    )
