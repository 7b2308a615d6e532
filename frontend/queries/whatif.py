"""Reads simulated variants of a job, and its predictors' errors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from controlplane.jobs.models import Decision, Job
from controlplane.runtime import forecasts
from controlplane.runtime.forecasts import RECENT_S
from controlplane.runtime.models import Forecast
from frontend.figures.rows import Other, Others, PredictorErrors, View

SCORES = 200
"""Maximum number of scorings that are drawn, the latest."""

__all__ = ["RECENT_S", "forecast", "look", "made_at", "others", "predictor_scores", "predictors"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictorScore:
    """One predictor with its last score."""

    name: str
    error: float
    rank: int
    """1 has the smallest error."""
    acting: bool


def look(job: Job) -> None:
    """Record that the page is viewed: simulate soon, and again while the job runs."""
    forecasts.want(job.pk)


def forecast(job: Job) -> Forecast | None:
    """The latest simulations."""
    return Forecast.objects.filter(job=job).first()


def made_at(jobs: Sequence[Job]) -> tuple[Any, ...]:
    """When these jobs were last simulated."""
    return tuple(Forecast.objects.filter(job__in=jobs).order_by("job").values_list("made_at", flat=True))


def others(job: Job, view: View) -> Others:
    """All simulated variants, best first."""
    found = forecast(job)
    if found is None or not found.answer:
        return Others(ways=(), now=None, doubt=0.0, reason=_reason(job, found))
    answer = found.answer
    fit = answer["fit"]
    doubt = abs(fit["predicted_s"] - fit["recorded_s"]) / fit["recorded_s"] if fit["recorded_s"] else 0.0
    ways = tuple(_other(each) for each in answer["alternatives"])
    return Others(ways=ways, now=_other(answer["recorded"]), doubt=doubt, reason="")


def predictors(job: Job, view: View) -> PredictorErrors:
    """The relative errors of all predictors over the iterations."""
    rows = _scorings(job)
    names = sorted({name for payload in rows for name in payload["scores"]})
    return PredictorErrors(
        iteration=np.array([payload["iteration"] for payload in rows], np.int64),
        errors={
            name: np.array([payload["scores"].get(name, {}).get("relative", np.nan) for payload in rows], np.float64)
            for name in names
        },
        acting=_acting(job, rows),
    )


def predictor_scores(job: Job) -> list[PredictorScore]:
    """The predictors with their last scores, best first."""
    rows = _scorings(job)
    if not rows:
        return []
    acting = _acting(job, rows)
    scores = sorted(rows[-1]["scores"].items(), key=lambda each: (each[1]["relative"], each[0]))
    return [
        PredictorScore(name=name, error=score["relative"], rank=place, acting=name == acting)
        for place, (name, score) in enumerate(scores, start=1)
    ]


def _scorings(job: Job) -> list[dict[str, Any]]:
    """The latest scores of the predictors, oldest first."""
    rows = Decision.objects.filter(job=job, kind="score-predictors").order_by("-incarnation", "-sequence")
    return list(rows.values_list("payload", flat=True)[:SCORES])[::-1]


def _acting(job: Job, rows: Sequence[dict[str, Any]]) -> str:
    """The active predictor: the last one adopted, or the one at the last scoring."""
    last = Decision.objects.filter(job=job, kind__in=("adopt-predictor", "score-predictors"))
    payload = last.order_by("-incarnation", "-sequence").values_list("payload", flat=True).first()
    return str(payload["acting"]) if payload else ""


def _other(found: dict[str, Any]) -> Other:
    return Other(
        name=found["name"],
        iteration_s=found["iteration_s"],
        waiting=found["waiting"],
        saved=found["saved"],
        low=found["saved_low"],
        high=found["saved_high"],
        samples=found["samples"],
        unfinished=found["unfinished"] > 0,
        kind=found.get("kind") or ("machines" if found["name"].startswith("without w") else "policy"),
    )


def _reason(job: Job, found: Forecast | None) -> str:
    if found is not None:
        return f"The simulation failed: {found.reason}."
    if not job.iteration:
        return "Variants are simulated once all workers have reported some iterations."
    return "Variants are being simulated in the background. Results appear within a minute or two."
