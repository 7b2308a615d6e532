"""Plays the runs that headlines need."""

import itertools

from controlplane.simulator.outcome import outcome_of
from controlplane.simulator.reproduction.claims import Played, Run
from controlplane.simulator.running import play
from controlplane.simulator.scenarios import find

TAIL = 10
"""Evaluations near the end that a figure is the mean of (PSP Fig. 13)."""


def play_run(run: Run, seed: int) -> Played:
    """One run with one seed; what it cost is for the caller to add."""
    cluster = play(find(run.scenario), run.policy, seed=seed, until_target=run.to_target)
    spans = [later - sooner for sooner, later in itertools.pairwise(cluster.servers.closed_s)]
    scores = cluster.mathematics.scores if cluster.mathematics is not None else []
    accuracies = [score[3] for score in scores[-TAIL:] if score[3] is not None]
    outcome = outcome_of(cluster, run.policy, seed, None)
    return Played(outcome=outcome, spans=spans, accuracies=accuracies, cpu_s=0.0)
