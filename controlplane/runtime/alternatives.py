"""Alternative policies of a job: their predicted effect in the last forecast, and the request that switches to them.

Changes of machines are not included, since no request to a job makes them.
"""

from dataclasses import dataclass
from typing import Any, Final

from controlplane.jobs.models import Decision, Job
from controlplane.jobs.selectors import job_synchronization
from controlplane.protocol.spec import Choice, Synchronization
from controlplane.runtime.models import Forecast
from controlplane.simulator.recorded_run import OTHERS

LEAST_GAIN: Final = 0.05
"""The smallest fraction of time saved for which a change is recommended."""

ALL: Final = 0.995
"""An alternative that processes at least this fraction of the samples counts as doing the same work."""

EXCHANGED: Final = ("batching", "barrier")
"""The policies that simulated alternatives change; placement and data stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Other policies, and the fraction of the current time that they would save."""

    name: str
    choices: dict[str, Choice]
    """The changed policies, by kind."""
    target: Synchronization
    iteration_s: float
    waiting: float
    saved: float
    low: float
    high: float
    """The highest saving of all simulated runs; ``low`` is the lowest."""
    doubt: float
    """The model's relative error on the recorded run."""
    samples: float
    unfinished: bool

    @property
    def title(self) -> str:
        """The names of its policies."""
        return ", ".join(_named(choice) for choice in self.choices.values())

    @property
    def request(self) -> dict[str, Any]:
        """The body of ``PATCH jobs/N/policy``."""
        return {question: choice.flat for question, choice in self.choices.items()}

    @property
    def is_advised(self) -> bool:
        """Whether it does the same work, and saves more time than the model's error in every simulated run."""
        same = set(self.choices) == {"batching"} and self.samples >= ALL and not self.unfinished
        return same and self.low > 0 and self.saved >= max(LEAST_GAIN, self.doubt)


def job_alternatives(job: Job) -> list[Alternative]:
    """The alternatives of the last forecast, the best first; none if the policies have changed since."""
    found = Forecast.objects.filter(job=job).first()
    if found is None or not found.answer or _has_changed_since(job, found):
        return []
    now, fit = job_synchronization(job), found.answer["fit"]
    doubt = abs(fit["predicted_s"] - fit["recorded_s"]) / fit["recorded_s"] if fit["recorded_s"] else 0.0
    policies = [each for each in found.answer["alternatives"] if each["name"] in OTHERS]
    alternatives = [_alternative(each, OTHERS[each["name"]], now, doubt) for each in policies]
    possible = {"batching"} if job.launch == "attached" else set(EXCHANGED)
    return [each for each in alternatives if each.choices and set(each.choices) <= possible]


def advised(alternatives: list[Alternative]) -> Alternative | None:
    """The recommended alternative with the largest saving; None if there is none."""
    return max((each for each in alternatives if each.is_advised), key=lambda each: each.saved, default=None)


def _alternative(found: dict[str, Any], target: Synchronization, now: Synchronization, doubt: float) -> Alternative:
    return Alternative(
        name=found["name"],
        choices=now.changes_to(target, EXCHANGED),
        target=target,
        iteration_s=found["iteration_s"],
        waiting=found["waiting"],
        saved=found["saved"],
        low=found["saved_low"],
        high=found["saved_high"],
        doubt=doubt,
        samples=found["samples"],
        unfinished=found["unfinished"] > 0,
    )


def _has_changed_since(job: Job, found: Forecast) -> bool:
    return Decision.objects.filter(job=job, kind="change-policies", at__gt=found.made_at).exists()


def _named(choice: Choice) -> str:
    predictor = choice.parameters.get("predictor")
    return f"{choice.name} with {predictor}" if isinstance(predictor, str) else choice.name
