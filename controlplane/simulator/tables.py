"""Tables of outcomes as rows of text: against the baseline, and against a paper's figures."""

from collections.abc import Sequence
from typing import Final

from controlplane.policies.wording import seconds
from controlplane.simulator.outcome import Fit, Outcome
from controlplane.simulator.scenario import PaperFigure, Scenario

HEADS: Final = ("policy", "iteration", "against", "waiting", "updates", "per update", "to target", "time to target")
NOTHING: Final = "-"


def rows(scenario: Scenario, outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """One row per outcome, with the columns ``HEADS``; ``against`` is the iteration time divided by the baseline's, if
    that was run.
    """
    base = _baseline(scenario, outcomes)
    return [
        (
            outcome.policy if outcome.state == "succeeded" else f"{outcome.policy} ({outcome.state})",
            seconds(outcome.iteration_s),
            f"{outcome.iteration_s / base.iteration_s:.2f}" if base is not None and base.iteration_s else NOTHING,
            f"{outcome.waiting:.0%}",
            f"{outcome.updates:,}",
            seconds(outcome.update_s),
            f"{outcome.updates_to_target:,}" if outcome.updates_to_target is not None else NOTHING,
            seconds(outcome.time_to_target_s) if outcome.time_to_target_s is not None else NOTHING,
        )
        for outcome in outcomes
    ]


def ratio(scenario: Scenario, figure: PaperFigure, outcomes: Sequence[Outcome]) -> float | None:
    """The simulated value for a paper's figure; None if either run is missing or did not get that far."""
    base = _baseline(scenario, outcomes)
    found = next((outcome for outcome in outcomes if outcome.policy == figure.policy), None)
    if base is None or found is None:
        return None
    mine, its = getattr(found, figure.metric), getattr(base, figure.metric)
    return mine / its if mine is not None and its else None


def endings(scenario: Scenario, outcomes: Sequence[Outcome]) -> list[str]:
    """A sentence for each run that did not succeed, with the reason."""
    late = f"not over at horizon_s, after {scenario.horizon_s:g} s of virtual time"
    return [
        f"{outcome.policy}: {late if outcome.state == 'running' else f'{outcome.state}: {outcome.why}'}"
        for outcome in outcomes
        if outcome.state != "succeeded"
    ]


def against_recorded(outcomes: Sequence[Outcome]) -> list[str]:
    """A sentence for each outcome that can be compared with a recorded job: the error of the prediction."""
    return [f"{outcome.policy}: {fit_sentence(outcome.fit)}" for outcome in outcomes if outcome.fit is not None]


def fit_sentence(fit: Fit) -> str:
    """The error of a model on the run from which it was learned."""
    return (
        f"the model, learned from this very run, gives its {fit.compared} {fit.what} a mean of "
        f"{seconds(fit.predicted_s)}, recorded were {seconds(fit.recorded_s)} ({fit.error_of_mean:.1%} off); error "
        f"of single ones: median {fit.error_median:.1%}, 95th percentile {fit.error_p95:.1%}"
    )


def against_paper(scenario: Scenario, outcomes: Sequence[Outcome]) -> list[str]:
    """A sentence for each figure of the paper."""
    sentences = []
    for figure in scenario.paper:
        found = ratio(scenario, figure, outcomes)
        ours = f"{found:.2f}" if found is not None else "not run, or not reached"
        sentences.append(
            f"{figure.where}, {figure.policy}: {figure.statement}; {figure.metric} over {scenario.baseline}'s "
            f"{figure.ratio:.2f} there, {ours} here"
        )
    return sentences


def _baseline(scenario: Scenario, outcomes: Sequence[Outcome]) -> Outcome | None:
    return next((outcome for outcome in outcomes if outcome.policy == scenario.baseline), None)
