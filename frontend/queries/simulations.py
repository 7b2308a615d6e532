"""Simulations as pages show them: the list, one of them with its outcomes, and what can be simulated."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from django.core.paginator import Page, Paginator
from django.db.models import QuerySet

from controlplane.simulator.errors import SimulationError
from controlplane.simulator.outcome import Outcome
from controlplane.simulator.scenario import Scenario
from controlplane.simulator.scenarios import scenarios
from controlplane.simulator.tables import HEADS, against_paper, rows
from controlplane.simulator.varying import is_limited, variation_of
from controlplane.telemetry.models import Simulation
from controlplane.telemetry.simulations import simulation_runs, simulation_scenario
from frontend.figures.rows import Simulated, SimulatedOutcome
from frontend.queries.comparison import LEAST, MOST

PER_PAGE = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One policy's row: its cells as text, and the number of the job that has its series."""

    cells: tuple[str, ...]
    job: int | None
    """None where an earlier release kept no series."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of a simulation so far, as rows of text under ``heads``."""

    heads: tuple[str, ...]
    rows: tuple[Run, ...]
    paper: tuple[str, ...]
    """A sentence for each figure of the paper that the scenario is modelled after."""

    @property
    def compared(self) -> tuple[int, ...]:
        """Jobs that can be laid side by side: the first few where there are many, none where there is only one."""
        jobs = [run.job for run in self.rows if run.job is not None][:MOST]
        return tuple(jobs) if len(jobs) >= LEAST else ()


def simulations() -> QuerySet[Simulation]:
    """All, the newest first."""
    return Simulation.objects.select_related("submitted_by").order_by("-id")


def simulation_page(number: str | int) -> Page[Simulation]:
    """One page of them."""
    return Paginator(simulations(), PER_PAGE).get_page(number)


def offered() -> Sequence[Scenario]:
    """What can be simulated, by name."""
    return sorted(scenarios().values(), key=lambda scenario: scenario.name)


def limited() -> frozenset[str]:
    """The scenarios in which more bandwidth, or less, makes a difference."""
    return frozenset(name for name, scenario in scenarios().items() if is_limited(scenario))


def scenario_of(row: Simulation) -> Scenario | None:
    """Its scenario; None where this release has none of that name any more, or it bears no such change."""
    try:
        return simulation_scenario(row)
    except SimulationError:
        return None


def varied_of(row: Simulation) -> str:
    """What is other than its scenario says, in words; empty where nothing is."""
    return variation_of(row.variation).sentence


def result(row: Simulation) -> Result:
    """The table, and what the paper found."""
    scenario, found = scenario_of(row), [Outcome(**document) for document in row.outcomes]
    if scenario is None:
        return Result(heads=HEADS, rows=(), paper=())
    paper = tuple(against_paper(scenario, found)) if found else ()
    jobs = simulation_runs(row).values_list("id", flat=True)
    runs = tuple(Run(cells=cells, job=job) for cells, job in zip_longest(rows(scenario, found), jobs))
    return Result(heads=HEADS, rows=runs, paper=paper)


def simulated(row: Simulation) -> Simulated:
    """What its figure is drawn from."""
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
