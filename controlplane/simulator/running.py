"""Runs scenarios: one policy, or all policies to compare."""

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from controlplane.core.states import JobState
from controlplane.simulator.autopilot import Seen
from controlplane.simulator.cluster import Cluster
from controlplane.simulator.control import Recorder, Recording
from controlplane.simulator.outcome import Outcome, judge, lengths_of, outcome_of
from controlplane.simulator.recorded_run import RECORDED, Run
from controlplane.simulator.scenario import Scenario, check, chosen


def simulate(
    scenario: Scenario, policy: str, *, seed: int = 0, recording: Recording | None = None, run: Run | None = None
) -> Outcome:
    """Simulate the job under ``policy``: a name in the scenario, or registered names joined by ``+``.

    ``run``: the recording that the scenario's machines were learned from, for a comparison.

    Raises:
        ScenarioError: for an impossible scenario, or an unknown policy.
        Stuck: if no further event can happen before the job is over.
        SeriesEnded: if a recorded series is shorter than the job.
    """
    check(scenario)
    cluster = play(scenario, policy, seed=seed, recording=recording)
    return beside(run, cluster, outcome_of(cluster, policy, seed, recording.digest if recording is not None else None))


def beside(run: Run | None, cluster: Cluster, outcome: Outcome) -> Outcome:
    """The outcome of ``cluster`` with its error against ``run``, if that had the same policies."""
    own = cluster.scenario.policies.get(RECORDED)
    if run is None or outcome.state != JobState.SUCCEEDED or chosen(cluster.scenario, outcome.policy) != own:
        return outcome
    return replace(outcome, fit=judge(run, [lengths_of(cluster)]))


def play(
    scenario: Scenario,
    policy: str,
    *,
    seed: int = 0,
    recording: Recorder | None = None,
    until_target: bool = False,
    watch: Callable[[], None] | None = None,
) -> Cluster:
    """Simulate, and return the whole run, for callers that need more than its outcome.

    ``watch`` is called many times per second, and ends the run by raising. Raises the errors of ``simulate``.
    """
    cluster = Cluster(
        scenario,
        chosen(scenario, policy),
        seed=seed,
        recording=recording,
        reassignment=scenario.reassigning.get(policy),
        until_target=until_target,
        player=Seen() if scenario.spec.autopilot is not None else None,
    )
    cluster.run(watch)
    return cluster


def compare(
    scenario: Scenario, policies: Sequence[str] = (), *, seed: int = 0, run: Run | None = None
) -> Iterator[Outcome]:
    """Yield one outcome per policy, all on the same machines; by default for the scenario's own policies."""
    check(scenario)
    names = list(policies) or list(scenario.policies)
    for name in names:
        chosen(scenario, name)
    for name in names:
        yield simulate(scenario, name, seed=seed, run=run)
