"""The change of policies that a page offers: only what does the same work, certainly faster, by more than the doubt."""

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.jobs.models import Decision, Job
from controlplane.runtime import names
from controlplane.runtime.alternatives import advised, job_alternatives
from controlplane.runtime.models import Forecast
from controlplane.runtime.redis import shared
from frontend.queries.advice import advice
from tests.frontend import factories
from tests.frontend.test_pages import text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def job() -> Job:
    return factories.played_job()


def play(job: Job, *found: dict[str, object]) -> None:
    row = Forecast.objects.get()
    Forecast.objects.update(answer=row.answer | {"alternatives": list(found)}, made_at=timezone.now())


def test_the_best_certain_change_of_batching_is_advised(job: Job) -> None:
    found = advised(job_alternatives(job))
    assert found is not None
    assert (found.title, found.request) == ("lb-bsp-linear", {"batching": {"name": "lb-bsp-linear"}})


@pytest.mark.parametrize(
    "found",
    [
        factories.alternative("asp", 0.6),
        factories.alternative("lb-bsp-linear", 0.6, samples=0.5),
        factories.alternative("lb-bsp-linear", 0.6, unfinished=1),
        factories.alternative("lb-bsp-linear", 0.3, saved_low=-0.01),
        factories.alternative("lb-bsp-linear", 0.03, saved_low=0.02),
        factories.alternative("without w3", 0.6, kind="machines"),
    ],
    ids=["another barrier", "less work", "unfinished", "slower in one run", "within the doubt", "other machines"],
)
def test_what_is_not_certainly_better_is_not_advised(job: Job, found: dict[str, object]) -> None:
    play(job, found)
    assert advised(job_alternatives(job)) is None


def test_a_forecast_of_earlier_policies_is_not_used(job: Job) -> None:
    row = factories.make_decision(job, 60, "change-policies", {"choices": {}}, iteration=30)
    Decision.objects.filter(pk=row.pk).update(at=timezone.now())
    assert job_alternatives(job) == []


def test_an_attached_job_is_offered_batching_only(job: Job) -> None:
    Job.objects.update(launch="attached")
    play(job, factories.alternative("asp", 0.6), factories.alternative("lb-bsp-linear", 0.2))
    assert [each.name for each in job_alternatives(Job.objects.get())] == ["lb-bsp-linear"]


def test_a_viewer_reads_the_advice_and_has_no_button(viewer: Client, job: Job) -> None:
    page = viewer.get(f"/jobs/{job.pk}/").content.decode()
    assert "lb-bsp-linear would save about 12% of the time." in text_of(viewer, f"/jobs/{job.pk}/")
    assert 'id="switch-policy"' not in page


def test_a_job_whose_workers_wait_is_simulated_soon_and_not_again_at_once(job: Job, redis_url: str) -> None:
    assert advice(job, timezone.now(), waits=False) is not None
    assert shared().zcard(names.FORECASTS_WANTED) == 0
    advice(job, timezone.now(), waits=True)
    assert shared().zcard(names.FORECASTS_WANTED) == 1
    shared().delete(names.FORECASTS_WANTED)
    Forecast.objects.update(made_at=timezone.now())
    advice(job, timezone.now(), waits=True)
    assert shared().zcard(names.FORECASTS_WANTED) == 0


def test_the_alternatives_are_in_the_api(viewer: Client, job: Job) -> None:
    found = viewer.get(f"/api/v1/jobs/{job.pk}/alternatives").json()
    assert [(each["title"], each["advised"]) for each in found] == [
        ("lb-bsp-linear", True),
        ("uniform, asp", False),
        ("uniform, backup", False),
    ]


@pytest.mark.parametrize(
    ("verdict", "shown"),
    [
        ("harmful", "It harms convergence : the loss is 2."),
        ("harmless", "iterations are unchanged . the loss is 2."),
    ],
)
def test_the_way_back_shows_the_judgement_of_the_guard(viewer: Client, job: Job, verdict: str, shown: str) -> None:
    choices = {"barrier": {"name": "asp"}}
    change = factories.make_decision(job, 60, "change-policies", {"choices": choices}, iteration=30)
    payload = {"verdict": verdict, "choices": {"barrier": {"name": "bsp"}}, "reverts": False}
    judged = factories.make_decision(job, 61, "judge-convergence", payload, reason="the loss is 2", iteration=60)
    Decision.objects.filter(pk__in=[change.pk, judged.pk]).update(at=timezone.now())
    text = text_of(viewer, f"/jobs/{job.pk}/")
    assert shown in text, text[text.find("Changed from") :][:400]


def test_a_judgement_of_a_larger_batch_is_none_of_the_policies(job: Job) -> None:
    change = factories.make_decision(job, 60, "change-policies", {"choices": {"batching": {"name": "lb-bsp-cpu"}}})
    payload = {"verdict": "harmful", "choices": {}, "grown_from": 64, "reverts": True}
    judged = factories.make_decision(job, 61, "judge-convergence", payload, reason="the loss is 2", iteration=60)
    Decision.objects.filter(pk__in=[change.pk, judged.pk]).update(at=timezone.now())
    found = advice(job, timezone.now(), waits=False)
    assert found is not None
    assert found.back is not None
    assert (found.back.is_harmful, found.back.judgement) == (False, "")


def test_what_harms_is_undone_and_not_a_later_change(viewer: Client, job: Job) -> None:
    earlier = factories.make_decision(
        job, 60, "change-policies", {"choices": {"barrier": {"name": "asp"}}}, iteration=30
    )
    later = factories.make_decision(
        job, 61, "change-policies", {"choices": {"batching": {"name": "lb-bsp-linear"}}}, iteration=40
    )
    payload = {"verdict": "harmful", "choices": {"barrier": {"name": "bsp"}}, "reverts": False}
    judged = factories.make_decision(job, 62, "judge-convergence", payload, reason="the loss is 2", iteration=60)
    Decision.objects.filter(pk__in=[earlier.pk, later.pk, judged.pk]).update(at=timezone.now())
    found = advice(job, timezone.now(), waits=False)
    assert found is not None
    assert found.back is not None
    assert (found.back.was, found.back.request) == ("bsp", {"barrier": {"name": "bsp"}})
