"""Simulates the runs that headlines need."""

import itertools
import statistics

from controlplane.core.commands import (
    AnyCommand,
    MeasurePlacement,
    MoveSplits,
    ScorePredictors,
    SetShares,
    StartProcess,
)
from controlplane.core.events import Entry
from controlplane.simulator.outcome import outcome_of
from controlplane.simulator.reproduction.claims import Played, Run
from controlplane.simulator.running import play
from controlplane.simulator.scenarios import find

TAIL = 10
"""Number of evaluations at the end in a mean (PSP Fig. 13)."""
SCORES = 2
"""Number of forecast scores at the end, each over 50 iterations: those in figures of iteration times.
"""


class Watching:
    """Extracts from a run's log what its headlines need besides the outcome: shares and forecast errors, added servers,
    moved splits, and measured effects of changes of placement.
    """

    def __init__(self, servers: int) -> None:
        self._servers = servers
        self.rmse: list[float] = []
        self.added: set[int] = set()
        self.moved_splits = 0
        self.first_shares: list[tuple[int, int]] = []
        self.exchanges: list[tuple[float, float]] = []

    def add(self, entry: Entry, commands: list[AnyCommand]) -> None:
        """Add an entry and the engine's commands for it."""
        del entry
        for command in commands:
            if isinstance(command, ScorePredictors):
                self.rmse.append(command.scores[command.acting].rmse)
            elif isinstance(command, StartProcess) and command.role == "server" and command.index >= self._servers:
                self.added.add(command.index)
            elif isinstance(command, MoveSplits):
                self.moved_splits += len(command.moves)
            elif isinstance(command, SetShares) and 0 in command.shares:
                self.first_shares.append((command.iteration, command.shares[0]))
            elif isinstance(command, MeasurePlacement) and command.before_s is not None:
                self.exchanges.append((command.before_s, command.after_s))


def play_run(run: Run, seed: int) -> Played:
    """Simulate one run with one seed; the caller adds its CPU time."""
    scenario = find(run.scenario)
    watching = Watching(scenario.spec.servers)
    cluster = play(scenario, run.policy, seed=seed, until_target=run.to_target, recording=watching)
    spans = [later - sooner for sooner, later in itertools.pairwise(cluster.servers.closed_s)]
    scores = cluster.mathematics.scores if cluster.mathematics is not None else []
    return Played(
        outcome=outcome_of(cluster, run.policy, seed, None),
        spans=spans,
        accuracies=[score[3] for score in scores[-TAIL:] if score[3] is not None],
        curve=[(at_s, updates, accuracy) for at_s, updates, _, accuracy in scores],
        losses=[(at_s, updates, loss) for at_s, updates, loss, _ in scores],
        added_servers=len(watching.added),
        moved_splits=watching.moved_splits,
        work=[(worker.samples, worker.compute_s + worker.communication_s) for worker in cluster.workers],
        first_shares=watching.first_shares,
        exchanges=watching.exchanges,
        rmse=statistics.fmean(watching.rmse[-SCORES:]) if watching.rmse else None,
        cpu_s=0.0,
    )
