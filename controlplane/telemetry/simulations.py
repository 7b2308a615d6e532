"""Simulations requested over REST: their rows, from the request to the outcomes and series.

The request and the one task that runs it write the row; each step is a conditional update, so a task that runs twice,
or continues after a cancellation, has no effect. A task sends heartbeats: the row of a task without one for ``SILENCE``
is queued for another, which continues after the policies that have an outcome.

Users take turns: after each policy, the user with the longest wait since the last turn is next.
"""

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.utils import timezone

from controlplane.jobs.models import Job
from controlplane.jobs.services import audit
from controlplane.people.models import Team
from controlplane.simulator.errors import SimulationError
from controlplane.simulator.outcome import outcome_from, outcome_of
from controlplane.simulator.recorded_run import Run, job_of, scenario_of
from controlplane.simulator.running import beside, play
from controlplane.simulator.scenario import Scenario, check, chosen
from controlplane.simulator.scenarios import find
from controlplane.simulator.tables import ratio
from controlplane.simulator.variations import Variation, variation_of, varied
from controlplane.telemetry.job_outlines import job_outline, recorded_outline
from controlplane.telemetry.models import Simulation
from controlplane.telemetry.simulated import Series, run_store

S: Final = Simulation.State
MOST_POLICIES: Final = 50
LOOK_S: Final = 0.5
"""How often a run checks whether it was cancelled, and sends a heartbeat."""
SILENCE: Final = timedelta(seconds=60)
"""A task is dead after this long without a heartbeat: far longer than any step between two."""
MOST_ATTEMPTS: Final = 3
"""A simulation is not retried after this many tasks have died of it."""

MOST_S: Final = 900.0
"""The time limit of a policy; its simulation ends, since others wait for the same process."""

USUAL: Final = Variation()

Learn = Callable[[int], Run]
"""Learns the machines from a recorded job's log; raises ``SimulationError``."""


class Cancelled(Exception):
    """The simulation was cancelled, or another task has it."""


class Stopping(Exception):
    """The process that runs it is about to stop, or another user's turn has come."""


def simulation_submit(
    *,
    scenario: str,
    policies: Sequence[str],
    seed: int,
    user: User,
    variation: Variation = USUAL,
    team: Team | None = None,
) -> Simulation:
    """Store a row that waits for its task; ``team`` owns it if given. ``scenario`` is a scenario's name, or ``job-7``
    for machines as in that job.

    Raises:
        SimulationError: for an unknown or impossible scenario or policy, a job that was not recorded, or an unsupported
        variation.
    """
    job = job_of(scenario)
    found = varied(find(scenario) if job is None else recorded_outline(job), variation)
    check(found)
    names = list(dict.fromkeys(policies)) or list(found.policies)
    if len(names) > MOST_POLICIES:
        raise SimulationError(f"policies: found {len(names)}, expected at most {MOST_POLICIES} at once")
    for name in names:
        chosen(found, name)
    with transaction.atomic():
        row = Simulation.objects.create(
            scenario=found.name,
            policies=names,
            seed=seed,
            variation=variation.document(),
            submitted_by=user,
            team=team,
        )
        audit(actor=user.get_username(), action="simulation-submit", subject=f"simulation {row.pk}")
    return row


def simulation_cancel(*, pk: int, user: User) -> bool:
    """Cancel it; False if it is over already. The current run stops within a second."""
    with transaction.atomic():
        live = Simulation.objects.filter(pk=pk, state__in=[S.QUEUED, S.RUNNING])
        done = live.update(state=S.CANCELLED, reason=f"cancelled by {user.get_username()}", finished_at=timezone.now())
        if done:
            audit(actor=user.get_username(), action="simulation-cancel", subject=f"simulation {pk}")
    return bool(done)


@transaction.atomic
def simulation_give(*, row: Simulation, team: Team | None, actor: str) -> None:
    """Assign it, with the jobs of its runs, to a team, or to none: then all users see it."""
    row = Simulation.objects.select_for_update().get(
        pk=row.pk
    )  # a run that ends meanwhile takes its owner from this row
    detail = {"from": str(row.team) if row.team else None, "to": team.name if team else None}
    row.team = team
    row.save(update_fields=["team"])
    row.runs.update(team=team)
    audit(actor=actor, action="owner", subject=f"simulation {row.pk}", detail=detail)


def learn_nothing(job: int) -> Run:
    """For callers that simulate scenarios only."""
    raise SimulationError(f"job {job}: recorded jobs cannot be read here")


def simulation_run(pk: int, is_stopping: Callable[[], bool] = lambda: False, learn: Learn = learn_nothing) -> None:
    """Simulate all its policies, one after another; outcome and series of each are stored as soon as they are complete.

    When ``is_stopping`` returns True, the current run stops, and the simulation waits for another task. It also waits
    after a policy while simulations of other users do.
    """
    row = _claim(pk)
    if row is None:
        return
    begun = row.done
    try:
        scenario, recorded = simulation_played(row, learn)
        for policy in row.policies[row.done :]:
            if row.done != begun and _has_others_to_run(row):
                raise Stopping
            _run(row, scenario, policy, recorded, is_stopping)
            row.done += 1
    except Cancelled:
        return
    except Stopping:
        _mine(row).update(state=S.QUEUED, attempt=F("attempt") - 1)
    except SimulationError as error:
        _end(row, S.FAILED, str(error))
    except Exception as error:
        _end(row, S.FAILED, f"a fault of the simulator: {type(error).__name__}: {error}")
        raise
    else:
        _end(row, S.SUCCEEDED, "")


def simulations_run(is_stopping: Callable[[], bool] = lambda: False, learn: Learn = learn_nothing) -> None:
    """Run all waiting simulations, until none waits or ``is_stopping`` returns True.

    Each policy is a turn of its user; of one user, the earliest request is first.
    """
    turns = Simulation.objects.filter(submitted_by=OuterRef("submitted_by"), started_at__isnull=False)
    waiting = (
        Simulation.objects.filter(state=S.QUEUED)
        .annotate(turn=Subquery(turns.order_by("-seen_at").values("seen_at")[:1]))
        .order_by(F("turn").asc(nulls_first=True), "id")
        .values_list("pk", flat=True)
    )
    while not is_stopping() and (pk := waiting.first()) is not None:
        simulation_run(pk, is_stopping, learn)


def simulations_rescue(now: datetime) -> bool:
    """Requeue those whose task has died; whether any waits.

    A simulation whose tasks have died repeatedly is ended instead.
    """
    dead = Simulation.objects.filter(state=S.RUNNING, seen_at__lt=now - SILENCE)
    reason = f"each of the {MOST_ATTEMPTS} processes that ran it died: see their logs, and how much memory they had"
    dead.filter(attempt__gte=MOST_ATTEMPTS).update(state=S.FAILED, reason=reason, finished_at=now)
    dead.update(state=S.QUEUED)
    return Simulation.objects.filter(state=S.QUEUED).exists()


def simulation_runs(row: Simulation) -> QuerySet[Job]:
    """The runs that have an outcome, in the order of the outcomes."""
    return row.runs.order_by("id")[: row.done]


def simulation_scenario(row: Simulation) -> Scenario:
    """The requested scenario, with the requested differences. The machines of a recorded job have no model yet.

    Raises:
        SimulationError: if this release no longer has such a scenario, or no longer supports the variation.
    """
    job = job_of(row.scenario)
    return varied(find(row.scenario) if job is None else job_outline(job), variation_of(row.variation))


def simulation_played(row: Simulation, learn: Learn) -> tuple[Scenario, Run | None]:
    """The scenario, with a recorded job's machines learned, and the recorded run to compare with, if comparable.

    Raises:
        SimulationError: as ``simulation_scenario``, or if the job has too little data for a model.
    """
    job, variation = job_of(row.scenario), variation_of(row.variation)
    if job is None:
        return simulation_scenario(row), None
    run = learn(job)
    return varied(scenario_of(run), variation), run if variation == USUAL else None


def simulation_figures(row: Simulation) -> list[dict[str, object]]:
    """The paper's result and the outcome, for each figure of the scenario; none if the scenario no longer exists."""
    try:
        scenario = simulation_scenario(row)
    except SimulationError:
        return []
    outcomes = [outcome_from(document) for document in row.outcomes]
    return [
        {
            "where": figure.where,
            "says": figure.statement,
            "policy": figure.policy,
            "metric": figure.metric,
            "paper": figure.ratio,
            "here": ratio(scenario, figure, outcomes),
        }
        for figure in scenario.paper
    ]


def _has_others_to_run(row: Simulation) -> bool:
    return Simulation.objects.filter(state=S.QUEUED).exclude(submitted_by=row.submitted_by).exists()


def _claim(pk: int) -> Simulation | None:
    """The row, if it waits for a task; partial results of an earlier one are deleted."""
    now = timezone.now()
    claim = {"state": S.RUNNING, "attempt": F("attempt") + 1, "started_at": Coalesce("started_at", now), "seen_at": now}
    if not Simulation.objects.filter(pk=pk, state=S.QUEUED).update(**claim):
        return None
    row = Simulation.objects.get(pk=pk)
    for job in row.runs.order_by("id")[row.done :]:
        job.delete()
    return row


def _mine(row: Simulation) -> QuerySet[Simulation]:
    """The row, as long as this task may write it."""
    return Simulation.objects.filter(pk=row.pk, state=S.RUNNING, attempt=row.attempt)


def _run(
    row: Simulation, scenario: Scenario, policy: str, recorded: Run | None, is_stopping: Callable[[], bool]
) -> None:
    """One policy: its outcome in the row, and a finished job with its series.

    Raises:
        Cancelled: if a user cancelled it meanwhile; no row of this run stays.
        Stopping: if the process is about to stop; likewise.
        SimulationError: if it takes longer than ``MOST_S``; likewise.
    """
    series = Series(has_losses=scenario.numerics is not None)
    cluster = play(scenario, policy, seed=row.seed, recording=series, watch=_watch(row, policy, is_stopping))
    row.refresh_from_db(fields=["team"])
    job = run_store(row, policy, cluster.spec, series, timezone.now())
    outcome = beside(recorded, cluster, outcome_of(cluster, policy, row.seed, None))
    row.outcomes = [*row.outcomes, outcome.document()]
    if not _mine(row).update(outcomes=row.outcomes, done=len(row.outcomes), seen_at=timezone.now()):
        job.delete()
        raise Cancelled


def _watch(row: Simulation, policy: str, is_stopping: Callable[[], bool]) -> Callable[[], None]:
    """Sends heartbeats to the row, checks there whether the run was cancelled, and ends it after ``MOST_S``."""
    due = began = time.monotonic()

    def look() -> None:
        nonlocal due
        if time.monotonic() < due:
            return
        due = time.monotonic() + LOOK_S
        if due - began > MOST_S:
            raise SimulationError(
                f"{policy}: simulated for more than {MOST_S:.0f} s, and ended: other simulations wait. Ask for fewer "
                "workers or fewer iterations, or simulate it on your own machine (manage.py simulate)"
            )
        if is_stopping():
            raise Stopping
        if not _mine(row).update(seen_at=timezone.now()):
            raise Cancelled

    return look


def _end(row: Simulation, state: str, reason: str) -> None:
    _mine(row).update(state=state, reason=reason, finished_at=timezone.now())
