"""The decision log: what each decision came to, its details, and taking it away."""

import csv
import io
import json

import pytest
from django.contrib.auth.models import User
from django.http import StreamingHttpResponse
from django.test import AsyncRequestFactory, Client

from controlplane.jobs.models import Decision, Job
from controlplane.jobs.services import audit
from frontend.queries.effects import effects
from frontend.queries.job import decisions
from frontend.views.exports import decisions_export
from tests.frontend import factories
from tests.frontend.test_pages import text_of

pytestmark = pytest.mark.django_db

EVEN, BALANCED = factories.Pace(shares=factories.EVEN), factories.Pace(shares=factories.BALANCED)


@pytest.fixture
def job() -> Job:
    """Even shares up to iteration 20, balanced ones from there on."""
    job = factories.make_job()
    factories.make_reports(job, [EVEN] * 20 + [BALANCED] * 20)
    return job


def shares(job: Job, sequence: int, iteration: int, predicted_s: float | None = None) -> Decision:
    payload = {"shares": {"0": 93}, "predicted_s": predicted_s}
    return factories.make_decision(job, sequence, "set-shares", payload, iteration=iteration)


def test_an_effect_is_the_mean_before_and_after(job: Job) -> None:
    row = shares(job, 1, 20, predicted_s=0.1)
    effect = effects(job, [row])[row.pk]
    assert (effect.before_s, effect.after_s) == (pytest.approx(EVEN.length_s), pytest.approx(BALANCED.length_s))
    assert effect.gain == pytest.approx(1 - BALANCED.length_s / EVEN.length_s)
    assert effect.busy_s == pytest.approx(max(BALANCED.busy_s))
    assert effect.miss == pytest.approx(max(BALANCED.busy_s) / 0.1 - 1)


def test_what_the_next_decision_did_is_not_counted_for_this_one(job: Job) -> None:
    early, late = shares(job, 1, 15), shares(job, 2, 20)
    found = effects(job, [early, late])
    assert found[early.pk].after_s == pytest.approx(EVEN.length_s)
    assert found[late.pk].before_s == pytest.approx(EVEN.length_s)


def test_a_decision_about_iterations_to_come_has_no_effect_yet(job: Job) -> None:
    row = shares(job, 1, 40)
    effect = effects(job, [row])[row.pk]
    assert (effect.after_s, effect.gain, effect.miss) == (None, None, None)


def test_decisions_that_change_no_iteration_have_no_effect(job: Job) -> None:
    factories.make_decision(job, 1, "move-job", {"state": "running"}, iteration=None)
    assert [line.effect for line in decisions(job)] == [None]


def test_the_log_reports_the_effect_and_links_to_its_iteration(viewer: Client, job: Job) -> None:
    shares(job, 1, 20, predicted_s=0.1)
    page = text_of(viewer, f"/jobs/{job.pk}/?tab=decisions&decisions=shares")
    assert "264 ms \N{RIGHTWARDS ARROW} 102 ms 61% shorter slowest worker: 100 ms predicted, 101 ms measured" in page
    body = viewer.get(f"/jobs/{job.pk}/?tab=decisions&decisions=shares").content.decode()
    assert f'href="/jobs/{job.pk}/?tab=timeline&amp;first-timeline=20"' in body


def test_all_decisions_of_a_kind_can_be_taken_away(viewer: Client, job: Job) -> None:
    for number in range(120):
        shares(job, number, number)
    factories.make_decision(job, 500, "hold-worker", {"rank": 1, "iteration": 3, "waits_for": [0]}, reason="=1+1")
    table = viewer.get(f"/jobs/{job.pk}/decisions.csv?decisions=shares").getvalue().decode()
    rows = list(csv.DictReader(io.StringIO(table)))
    assert ([row["sequence"] for row in rows], json.loads(rows[3]["payload"])["shares"]) == (
        [str(number) for number in range(120)],
        {"0": 93},
    )
    everything = json.loads(viewer.get(f"/jobs/{job.pk}/decisions.json").getvalue())
    assert (len(everything), everything[-1]["reason"]) == (121, "=1+1")


def test_under_asgi_an_export_is_sent_while_it_is_read(job: Job, admin_user: User) -> None:
    request = AsyncRequestFactory().get("/")
    request.user = admin_user
    reply = decisions_export(request, job.pk, "csv")
    assert isinstance(reply, StreamingHttpResponse)
    assert reply.is_async


def test_a_reason_that_a_spreadsheet_would_calculate_stays_text(viewer: Client, job: Job) -> None:
    factories.make_decision(job, 1, "move-job", {"state": "running"}, reason="=HYPERLINK(1)")
    table = viewer.get(f"/jobs/{job.pk}/decisions.csv").getvalue().decode()
    assert next(csv.DictReader(io.StringIO(table)))["reason"] == "'=HYPERLINK(1)"


def test_an_export_of_an_unknown_kind_is_refused(viewer: Client, job: Job) -> None:
    assert text_of(viewer, f"/jobs/{job.pk}/decisions.csv?decisions=best", 400).startswith("decisions: found 'best'")
    assert viewer.get(f"/jobs/{job.pk}/decisions.xls").status_code == 404


def test_the_audit_page_reports_who_requested_what(viewer: Client) -> None:
    assert "No requests yet." in text_of(viewer, "/audit/")
    audit(actor="ada", action="job-stop", subject="job 7", detail={"state": "running"})
    audit(actor="bob", action="token-create", subject="token 1")
    page = text_of(viewer, "/audit/?actor=ad")
    assert "ada job-stop job 7 state running" in page
    assert "bob" not in page
    assert "No matching entries." in text_of(viewer, "/audit/?action=job-stop&actor=bob")


def test_a_request_is_shown_as_sent_and_a_whole_spec_in_a_drawer(viewer: Client) -> None:
    audit(actor="ada", action="job-change", subject="job 7", detail={"barrier": {"name": "ssp", "literal": False}})
    audit(actor="ada", action="job-submit", subject="job 7", detail={"spec": factories.spec()})
    body = viewer.get("/audit/").content.decode()
    assert "{&quot;name&quot;:&quot;ssp&quot;,&quot;literal&quot;:false}" in body
    assert "<summary>spec</summary>" in body
    assert "&quot;workers&quot;: 4,\n" in body
    assert "None" not in body


def test_what_was_asked_can_be_taken_away_as_it_was_narrowed(viewer: Client) -> None:
    audit(actor="ada", action="job-stop", subject="job 7", detail={"state": "running"})
    audit(actor="bob", action="token-create", subject="=1+1")
    body = viewer.get("/audit/?actor=ad&page=1").content.decode()
    assert 'href="/audit.csv?actor=ad"' in body
    rows = list(csv.DictReader(io.StringIO(viewer.get("/audit.csv?actor=ad").getvalue().decode())))
    assert [(row["actor"], row["action"], json.loads(row["detail"])) for row in rows] == [
        ("ada", "job-stop", {"state": "running"})
    ]
    everything = json.loads(viewer.get("/audit.json").getvalue())
    assert [(row["actor"], row["subject"]) for row in everything] == [("ada", "job 7"), ("bob", "=1+1")]


def test_a_decision_reports_who_requested_it_or_which_policy_decided(viewer: Client, job: Job) -> None:
    change = factories.make_decision(job, 1, "change-policies", {"choices": {}, "first_iteration": 20}, iteration=20)
    audit(actor="ada", action="job-change", subject=f"job {job.pk}", detail={}, job=job, entry=change.cause)
    factories.make_decision(job, 2, "set-placement", {"version": 1, "policy": "psld", "blocks": []})
    factories.make_decision(job, 3, "move-job", {"state": "running"})
    assert [line.actor for line in decisions(job)] == ["the engine", "psld", "ada"]
    assert "by ada" in text_of(viewer, f"/jobs/{job.pk}/?tab=decisions")
    rows = json.loads(viewer.get(f"/jobs/{job.pk}/decisions.json").getvalue())
    assert [row["actor"] for row in rows] == ["ada", "psld", "the engine"]
