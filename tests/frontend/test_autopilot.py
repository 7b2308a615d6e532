"""An autopilot on its job's page: what it does, what it proposes, and each decision with its table."""

import html

import pytest
from django.test import Client

from controlplane.jobs import autopilots
from controlplane.jobs.autopilots import changed_by, decision_counts, job_autopilot
from controlplane.jobs.models import Decision, Job
from tests.frontend import factories
from tests.frontend.test_pages import text_of

pytestmark = pytest.mark.django_db

LINEAR = "lb-bsp-linear, bsp"
ROWS = [
    {"name": LINEAR, "saved": 0.3, "low": 0.28, "high": 0.32, "error": 0.04, "verdict": "saves most"},
    {"name": "uniform, asp", "saved": 0.1, "low": -0.1, "high": 0.2, "error": 0.04, "verdict": "saves nothing"},
]
MEASURED = {"iteration": 60, "name": LINEAR, "came_from": "uniform, bsp", "before_s": 0.01, "after_s": 0.0075}


@pytest.fixture
def job() -> Job:
    job = factories.played_job()
    Job.objects.filter(pk=job.pk).update(spec=job.spec | {"autopilot": {"mode": "auto"}}, state="running")
    return Job.objects.get(pk=job.pk)


def say(job: Job, kind: str, reason: str = "so", **payload: object) -> Decision:
    number = Decision.objects.filter(job=job).order_by("sequence").values_list("sequence", flat=True).last() or 0
    return factories.make_decision(job, number + 1, kind, payload, reason=reason)


def judged(job: Job, chosen: str = LINEAR, *, switches: bool = True) -> None:
    choices = {"batching": {"name": "lb-bsp-linear", "parameters": {}}} if chosen else {}
    fields = {"look": 1, "iteration": 20, "present": "uniform, bsp", "rows": ROWS}
    say(
        job,
        "judge-alternatives",
        f"{chosen} is better",
        chosen=chosen,
        switches=switches and bool(chosen),
        choices=choices,
        **fields,
    )


def changed(job: Job, actor: str = "autopilot") -> None:
    choices = {"batching": {"name": "lb-bsp-linear", "parameters": {}}}
    reason = f"batching becomes lb-bsp-linear, requested by {actor}"
    say(job, "change-policies", reason, generation=2, first_iteration=22, choices=choices)


def measured(job: Job) -> None:
    say(job, "measure-switch", "it saves 25.0%", **MEASURED, predicted=0.3, error=0.04, kept=True, goes_back=False)


def test_a_switch_is_shown_with_its_alternatives_and_its_measured_effect(viewer: Client, job: Job) -> None:
    judged(job)
    changed(job)
    page = text_of(viewer, f"/jobs/{job.pk}/?tab=whatif")
    assert "Iteration 20: switched to lb-bsp-linear, bsp" in page
    assert "It measures what the last switch has brought." in page
    assert "lb-bsp-linear, bsp 30.0% 28.0% to 32.0% 4.0%" in page
    measured(job)
    page = text_of(viewer, f"/jobs/{job.pk}/?tab=whatif")
    assert "Measured: it saves 25.0%." in page
    assert "lb-bsp-linear, bsp 30.0% 28.0% to 32.0% 4.0% 25.0%" in page


def test_a_proposal_is_one_click_on_the_jobs_page_for_those_who_may(viewer: Client, operator: Client, job: Job) -> None:
    Job.objects.update(spec=job.spec | {"autopilot": {"mode": "suggest"}})
    judged(job, switches=False)
    page = html.unescape(operator.get(f"/jobs/{job.pk}/").content.decode())
    assert 'data-body="{"batching":{"name":"lb-bsp-linear"}}"' in page
    assert "Switch to lb-bsp-linear, bsp: saves about 30%" in page
    assert "take-proposal" not in viewer.get(f"/jobs/{job.pk}/").content.decode()
    assert job_autopilot(Job.objects.get(pk=job.pk)).proposal == {"batching": {"name": "lb-bsp-linear"}}


def test_a_proposal_names_what_its_own_row_saves(operator: Client, job: Job) -> None:
    Job.objects.update(spec=job.spec | {"autopilot": {"mode": "suggest"}})
    judged(job, switches=False)
    row = Decision.objects.get(kind="judge-alternatives")
    avoided = {"name": "uniform, asp", "saved": 0.6, "low": 0.6, "high": 0.6, "error": 0.04, "verdict": "not tried"}
    Decision.objects.filter(pk=row.pk).update(payload=row.payload | {"rows": [avoided, *ROWS]})
    assert "Switch to lb-bsp-linear, bsp: saves about 30%" in text_of(operator, f"/jobs/{job.pk}/")


def test_a_proposal_ends_with_any_change_of_policies(job: Job) -> None:
    judged(job, switches=False)
    changed(job, actor="ada")
    assert job_autopilot(job).proposed is None


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("barrier", "barrier becomes bsp, requested by autopilot: every worker has stopped"),
        ("placement", "placement becomes psld, requested by ada"),
    ],
)
def test_the_mode_is_of_the_engine_and_not_read_from_reasons_of_changes(job: Job, question: str, reason: str) -> None:
    judged(job)
    say(job, "change-policies", reason, generation=2, first_iteration=22, choices={question: {"name": "x"}})
    assert job_autopilot(job).mode == "auto"
    say(job, "set-autopilot", mode="suggest")
    changed(job)
    assert job_autopilot(job).mode == "suggest"


def test_the_mode_is_found_behind_any_number_of_later_decisions(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autopilots, "READ", 2)
    say(job, "set-autopilot", mode="suggest")
    for _ in range(3):
        judged(job, "")
    assert job_autopilot(job).mode == "suggest"


@pytest.mark.parametrize(
    ("ending", "actor"), [("", "autopilot"), (": every worker has stopped", "autopilot"), ("", "guard"), ("", "ada")]
)
def test_who_changed_policies_is_read_from_the_reason(job: Job, ending: str, actor: str) -> None:
    row = say(job, "change-policies", f"barrier becomes bsp, requested by {actor}{ending}", choices={})
    assert changed_by(row) == actor


def test_policies_that_the_guard_restored_are_not_measured(viewer: Client, job: Job) -> None:
    judged(job)
    changed(job)
    changed(job, actor="guard")
    assert "It measures what the last switch" not in text_of(viewer, f"/jobs/{job.pk}/?tab=whatif")


def test_a_switch_whose_measurement_ended_without_a_result_is_not_measured_for_ever(viewer: Client, job: Job) -> None:
    judged(job)
    changed(job)
    judged(job, "")
    assert "It measures what the last switch" not in text_of(viewer, f"/jobs/{job.pk}/?tab=whatif")


def test_its_mode_is_that_of_the_last_request(operator: Client, job: Job) -> None:
    assert "Propose only" in text_of(operator, f"/jobs/{job.pk}/?tab=whatif")
    say(job, "set-autopilot", mode="suggest")
    assert "Switch automatically" in text_of(operator, f"/jobs/{job.pk}/?tab=whatif")


def test_a_job_without_one_reports_how_to_get_one(viewer: Client) -> None:
    job = factories.played_job()
    assert "This job has no autopilot." in text_of(viewer, f"/jobs/{job.pk}/?tab=whatif")
    assert "advice-autopilot" not in viewer.get(f"/jobs/{job.pk}/").content.decode()


def test_the_change_of_an_autopilot_is_named_as_its_own(viewer: Client, job: Job) -> None:
    judged(job)
    changed(job)
    Decision.objects.filter(kind="change-policies").update(at=Job.objects.get(pk=job.pk).state_since)
    assert job_autopilot(job).mode == "auto"


def test_what_came_of_its_comparisons_is_counted(job: Job) -> None:
    judged(job)
    judged(job, "")
    judged(job, switches=False)
    say(job, "measure-switch", **MEASURED, predicted=0.3, error=0.04, kept=False, goes_back=True)
    counts = {"stayed": 1, "proposed": 1, "switched": 1, "taken_back": 1}
    assert decision_counts([job.pk]) == {job.pk: counts}
