"""Simulations that somebody asked for over REST: their rows, from the request to the outcomes and series.

A row is written by whoever asks and by the one task that runs it; each step is a conditional update, so a task that
runs twice, or runs on after a cancel, changes nothing.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from controlplane.jobs.models import Job
from controlplane.jobs.services import audit
from controlplane.simulator.errors import SimulationError
from controlplane.simulator.outcome import Outcome, outcome_of
from controlplane.simulator.running import play
from controlplane.simulator.scenario import check, chosen
from controlplane.simulator.scenarios import find
from controlplane.simulator.tables import ratio
from controlplane.telemetry.models import Simulation
from controlplane.telemetry.simulated import Series, run_store

S: Final = Simulation.State
MOST_POLICIES: Final = 50
LOOK_S: Final = 0.5
"""How often a run that is under way looks whether it was cancelled."""


class Cancelled(Exception):
    """Somebody wants the simulation no more."""


def simulation_submit(*, scenario: str, policies: Sequence[str], seed: int, user: User) -> Simulation:
    """A row that waits for its task.

    Raises:
        SimulationError: for a scenario or a policy that does not exist, or cannot be.
    """
    found = find(scenario)
    check(found)
    names = list(dict.fromkeys(policies)) or list(found.policies)
    if len(names) > MOST_POLICIES:
        raise SimulationError(f"policies: found {len(names)}, expected at most {MOST_POLICIES} at once")
    for name in names:
        chosen(found, name)
    with transaction.atomic():
        row = Simulation.objects.create(scenario=scenario, policies=names, seed=seed, submitted_by=user)
        audit(actor=user.get_username(), action="simulation-submit", subject=f"simulation {row.pk}")
    return row


def simulation_cancel(*, pk: int, user: User) -> bool:
    """Have it end; False where it is over already. The run that is under way breaks off within a second."""
    with transaction.atomic():
        live = Simulation.objects.filter(pk=pk, state__in=[S.QUEUED, S.RUNNING])
        done = live.update(state=S.CANCELLED, reason=f"cancelled by {user.get_username()}", finished_at=timezone.now())
        if done:
            audit(actor=user.get_username(), action="simulation-cancel", subject=f"simulation {pk}")
    return bool(done)


def simulation_run(pk: int) -> None:
    """All its policies, one after another; outcome and series of each are stored when they are there."""
    claimed = Simulation.objects.filter(pk=pk, state=S.QUEUED).update(state=S.RUNNING, started_at=timezone.now())
    if not claimed:
        return
    row = Simulation.objects.get(pk=pk)
    try:
        for policy in row.policies:
            _run(row, policy)
    except Cancelled:
        return
    except SimulationError as error:
        _end(pk, S.FAILED, str(error))
    except Exception as error:
        _end(pk, S.FAILED, f"a fault of the simulator: {type(error).__name__}: {error}")
        raise
    else:
        _end(pk, S.SUCCEEDED, "")


def simulation_runs(row: Simulation) -> QuerySet[Job]:
    """The runs that have an outcome, in the order of the outcomes."""
    return row.runs.order_by("id")[: row.done]


def simulation_figures(row: Simulation) -> list[dict[str, object]]:
    """What the paper found, and what came out, for each of the scenario's figures."""
    scenario = find(row.scenario)
    outcomes = [Outcome(**document) for document in row.outcomes]
    return [
        {
            "where": figure.where,
            "says": figure.says,
            "policy": figure.policy,
            "metric": figure.metric,
            "paper": figure.ratio,
            "here": ratio(scenario, figure, outcomes),
        }
        for figure in scenario.paper
    ]


def _run(row: Simulation, policy: str) -> None:
    """One policy: its outcome in the row, and a job that is over with its series.

    Raises:
        Cancelled: if somebody cancelled it meanwhile; nothing of this run stays.
    """
    scenario = find(row.scenario)
    series = Series(has_losses=scenario.numerics is not None)
    cluster = play(scenario, policy, seed=row.seed, recording=series, watch=_cancel_watch(row.pk))
    job = run_store(row, policy, cluster.spec, series, timezone.now())
    row.outcomes = [*row.outcomes, outcome_of(cluster, policy, row.seed, None).document()]
    live = Simulation.objects.filter(pk=row.pk, state=S.RUNNING)
    if not live.update(outcomes=row.outcomes, done=len(row.outcomes)):
        job.delete()
        raise Cancelled


def _cancel_watch(pk: int) -> Callable[[], None]:
    """Looks into the row now and then."""
    due = time.monotonic() + LOOK_S

    def look() -> None:
        nonlocal due
        if time.monotonic() < due:
            return
        due = time.monotonic() + LOOK_S
        if not Simulation.objects.filter(pk=pk, state=S.RUNNING).exists():
            raise Cancelled

    return look


def _end(pk: int, state: str, reason: str) -> None:
    Simulation.objects.filter(pk=pk, state=S.RUNNING).update(state=state, reason=reason, finished_at=timezone.now())
