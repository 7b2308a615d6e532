"""Every error has one shape."""

import re
from typing import Any

import pytest
import structlog
from django.test import Client
from rest_framework.test import APIClient

from controlplane.api.tracing import current_trace
from controlplane.jobs import selectors
from tests.api.conftest import problem, refused

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("method", ["get", "post", "put", "patch", "delete"])
def test_nowhere_is_a_problem_whatever_the_method(anybody: APIClient, method: str) -> None:
    reply = getattr(anybody, method)("/api/v1/nothing/here")
    sentence = "not found: /api/v1/nothing/here; /api/v1/ lists the resources"
    assert (reply.status_code, refused(reply)) == (404, problem(404, sentence))


def test_a_method_that_is_not_there(viewer: APIClient, admin: APIClient) -> None:
    reply = admin.put("/api/v1/jobs", {}, format="json")
    assert (refused(reply), reply["Allow"]) == (problem(405, 'Method "PUT" not allowed.'), "GET, POST, HEAD, OPTIONS")


def test_what_breaks_here_reports_it_and_nothing_more(viewer: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(selectors, "job_decisions", break_down)
    monkeypatch.setattr("controlplane.api.views.records.DecisionsView.rows_of", staticmethod(break_down))
    monkeypatch.setattr("controlplane.api.views.records._job", lambda pk: type("Row", (), {"pk": pk}))
    sentence = "internal error; see the log of the web process"
    assert refused(viewer.get("/api/v1/jobs/1/decisions")) == problem(500, sentence)


def test_every_missing_field_of_a_small_document_is_named(anybody: APIClient) -> None:
    reply = anybody.post("/api/v1/agents/enrol", {"name": ""}, format="json")
    assert refused(reply) == problem(
        400,
        "token: This field is required.; name: This field may not be blank.",
        ("token", None, "This field is required."),
        ("name", "", "This field may not be blank."),
    )


@pytest.mark.parametrize("body", ["[]", "3", '"x"', "null", "true"])
def test_a_body_that_is_no_object_is_a_problem(anybody: APIClient, body: str) -> None:
    reply = anybody.post("/api/v1/agents/enrol", body, content_type="application/json")
    assert (reply.status_code, refused(reply)["field"]) == (400, "")


def test_a_host_that_is_not_ours_is_refused(settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["paceline.example.org"]
    reply = Client(raise_request_exception=False).get("/api/v1/jobs", headers={"host": "elsewhere"})
    assert (reply.status_code, refused(reply)["title"]) == (400, "Bad Request")


def test_pages_keep_their_own_errors() -> None:
    reply = Client(raise_request_exception=False).get("/nothing/here/")
    assert (reply.status_code, reply["Content-Type"].partition(";")[0]) == (404, "text/html")


def test_a_request_has_an_id_of_its_own_that_its_answer_reports(anybody: APIClient) -> None:
    first, second = anybody.get("/api/v1/nothing"), anybody.get("/healthz")
    assert re.fullmatch(r"[0-9a-f]{16}", first["X-Trace-Id"])
    assert first["X-Trace-Id"] != second["X-Trace-Id"]
    assert current_trace() == ""


@pytest.mark.parametrize(("given", "kept"), [("from-the-proxy.17", True), ("short", False), ("a b c d e f g h", False)])
def test_an_id_that_a_proxy_gave_is_kept_where_it_is_one(anybody: APIClient, given: str, kept: bool) -> None:
    reply = anybody.get("/api/v1/nothing", headers={"x-trace-id": given})
    assert (reply["X-Trace-Id"] == given) is kept
    assert reply.json()["trace_id"] == reply["X-Trace-Id"]


def test_the_log_has_what_broke_under_the_id_of_the_request(viewer: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def break_down(*_: Any, **__: Any) -> None:
        seen.append(str(structlog.contextvars.get_contextvars()["trace_id"]))
        raise ZeroDivisionError

    monkeypatch.setattr("controlplane.api.views.records._job", break_down)
    reply = viewer.get("/api/v1/jobs/1/decisions")
    assert (reply.status_code, seen) == (500, [reply["X-Trace-Id"]])


@pytest.mark.parametrize(
    ("path", "noun"),
    [("jobs/999", "job"), ("jobs/999/decisions", "job"), ("agents/999", "agent"), ("teams/999", "team")],
)
def test_what_is_missing_is_named_with_where_it_was_looked_for(admin: APIClient, path: str, noun: str) -> None:
    sentence = f"no {noun} that you may see exists at /api/v1/{path}"
    assert refused(admin.get(f"/api/v1/{path}")) == problem(404, sentence)
