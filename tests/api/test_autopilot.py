"""The autopilot over REST: its spec, its mode, its decisions."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from controlplane.core.events import AutopilotRequested
from controlplane.jobs.models import AuditEntry, Job
from controlplane.jobs.validation import validated_spec
from controlplane.protocol.spec import SpecError, parse_spec, spec_document
from controlplane.runtime.log import start_log
from tests.api.conftest import refused
from tests.api.test_steering import last_event
from tests.core.story import document
from tests.support.rows import submitted_job

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(redis_url: str) -> Job:
    """One that runs with an autopilot, as far as the rows know."""
    job = submitted_job(User.objects.create_user("ada"))
    start_log(job.pk, parse_spec(job.spec))
    Job.objects.update(state="running", spec=job.spec | {"autopilot": {"mode": "auto"}})
    return Job.objects.get()


def test_its_mode_is_set_by_a_request_that_is_audited(operator: APIClient, job: Job, redis_url: str) -> None:
    where = f"/api/v1/jobs/{job.pk}/autopilot"
    before = operator.get(where).json()
    assert (before["mode"], before["proposal"], before["decisions"]) == ("auto", {}, [])
    assert operator.patch(where, {"mode": "suggest"}, format="json").status_code == 202
    assert last_event(redis_url, job) == AutopilotRequested(actor="operator", mode="suggest")
    assert AuditEntry.objects.latest("id").action == "autopilot-mode"


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        ({"mode": "off"}, 422, "mode: expected auto or suggest"),
        ([], 422, "mode: expected auto or suggest"),
    ],
)
def test_another_mode_is_refused(operator: APIClient, job: Job, body: Any, status: int, detail: str) -> None:
    reply = operator.patch(f"/api/v1/jobs/{job.pk}/autopilot", body, format="json")
    assert (reply.status_code, refused(reply)["detail"]) == (status, detail)


def test_a_job_without_one_reports_how_to_get_one(operator: APIClient, job: Job) -> None:
    Job.objects.update(spec={name: value for name, value in job.spec.items() if name != "autopilot"})
    reply = operator.patch(f"/api/v1/jobs/{job.pk}/autopilot", {"mode": "auto"}, format="json")
    assert reply.status_code == 409
    assert refused(reply)["detail"].endswith("has no autopilot: submit it with policy: auto or policy: suggest")


def test_the_short_form_reports_the_same_and_every_form_is_read_back() -> None:
    short = validated_spec(document(policy="auto"))
    assert short == validated_spec(document(autopilot={"mode": "auto"})) == validated_spec(document(autopilot="auto"))
    flat = document(
        autopilot={"batching": ["uniform", {"name": "lb-bsp-cpu", "predictor": "ema"}], "barriers": ["asp"]}
    )
    spec = validated_spec(flat)
    assert parse_spec(spec_document(spec)) == spec


def test_a_guarded_job_learns_as_long_as_its_guard_needs_before_its_barrier_may_change() -> None:
    """Otherwise the guard could only say that it has seen too little."""
    guarded = {"guard": {"reference": 40}, "autopilot": {"learn": 39, "barriers": ["asp"]}}
    with pytest.raises(
        SpecError, match=r"autopilot\.learn: found 39, expected at least guard\.reference \(40\)"
    ) as told:
        validated_spec(document(**guarded))
    assert "set learn to 40, or leave out autopilot.barriers" in str(told.value)
    validated_spec(document(guard={"reference": 40}, autopilot={"learn": 40, "barriers": ["asp"]}))
    validated_spec(document(guard="revert", policy="auto"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"policy": "fast"},
            "policy: found 'fast', expected auto or suggest; policies that must not change belong in synchronization",
        ),
        ({"policy": "auto", "autopilot": {}}, "policy: found 'auto', expected none beside autopilot"),
        ({"autopilot": {"learn": 3}}, "autopilot.learn: found 3, expected `int` >= 12"),
        ({"autopilot": {"batching": ["fast"]}}, "autopilot.batching[0].name: found 'fast', expected one of deadline"),
        ({"autopilot": {"barriers": ["slow"]}}, "autopilot.barriers[0].name: found 'slow', expected one of aggressive"),
        (
            {"autopilot": {"barriers": ["backup"]}},
            "autopilot.barriers[0]: found 'backup', expected a barrier",
        ),
        (
            {"autopilot": {"batching": [{"name": "uniform", "x": 1}]}},
            "autopilot.batching[0].x: found 'x', expected",
        ),
    ],
)
def test_what_it_cannot_choose_is_refused_with_the_field_and_the_cure(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        validated_spec(document(**given))
    assert str(caught.value).startswith(message)
