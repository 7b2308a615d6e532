"""Simulations that somebody asked for over REST: their rows, from the request to the outcomes.

A row is written by whoever asks and by the one task that runs it; each step is a conditional update, so a task that
runs twice, or runs on after a cancel, changes nothing.
"""

from collections.abc import Sequence
from typing import Final

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from controlplane.jobs.services import audit
from controlplane.simulator.errors import SimulationError
from controlplane.simulator.outcome import Outcome
from controlplane.simulator.running import simulate
from controlplane.simulator.scenario import check, chosen
from controlplane.simulator.scenarios import find
from controlplane.simulator.tables import ratio
from controlplane.telemetry.models import Simulation

S: Final = Simulation.State
MOST_POLICIES: Final = 50


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
    """Have it end; False where it is over already. A run that is under way is thrown away when it ends."""
    with transaction.atomic():
        live = Simulation.objects.filter(pk=pk, state__in=[S.QUEUED, S.RUNNING])
        done = live.update(state=S.CANCELLED, reason=f"cancelled by {user.get_username()}", finished_at=timezone.now())
        if done:
            audit(actor=user.get_username(), action="simulation-cancel", subject=f"simulation {pk}")
    return bool(done)


def simulation_run(pk: int) -> None:
    """All its policies, one after another; each outcome is stored when it is there."""
    claimed = Simulation.objects.filter(pk=pk, state=S.QUEUED).update(state=S.RUNNING, started_at=timezone.now())
    if not claimed:
        return
    row = Simulation.objects.get(pk=pk)
    try:
        for policy in row.policies:
            outcome = simulate(find(row.scenario), policy, seed=row.seed)
            if not _store(row, outcome):
                return
    except SimulationError as error:
        _end(pk, S.FAILED, str(error))
    except Exception as error:
        _end(pk, S.FAILED, f"a fault of the simulator: {type(error).__name__}: {error}")
        raise
    else:
        _end(pk, S.SUCCEEDED, "")


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


def _store(row: Simulation, outcome: Outcome) -> bool:
    """Add an outcome; False where the simulation was cancelled meanwhile."""
    row.outcomes = [*row.outcomes, outcome.document()]
    live = Simulation.objects.filter(pk=row.pk, state=S.RUNNING)
    return bool(live.update(outcomes=row.outcomes, done=len(row.outcomes)))


def _end(pk: int, state: str, reason: str) -> None:
    Simulation.objects.filter(pk=pk, state=S.RUNNING).update(state=state, reason=reason, finished_at=timezone.now())
