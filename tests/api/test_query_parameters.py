"""Query parameters are as the OpenAPI document says, or refused by name."""

import re
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from drf_spectacular.generators import SchemaGenerator
from rest_framework.test import APIClient

from tests.api import test_permissions
from tests.api.conftest import refused
from tests.support.rows import online_agent, submitted_job

pytestmark = pytest.mark.django_db


@pytest.fixture
def job() -> int:
    online_agent("m1")
    return submitted_job(User.objects.create_user("ada")).pk


@pytest.mark.parametrize(
    ("path", "field", "found", "expected"),
    [
        *(
            ("jobs", "page_size", found, "a number from 1 to 500")
            for found in ("null", "", "0", "501", "1.5", "-1", "²")
        ),
        ("jobs", "state", "", "a value; omit the parameter to get all"),
        ("agents", "state", "", "a value; omit the parameter to get all"),
        ("workers", "job", "", "a value; omit the parameter to get all"),
        ("jobs/{job}/logs", "since", "", "a value; omit the parameter to get all"),
        ("jobs/{job}/logs", "level", "", "a value; omit the parameter to get all"),
        ("jobs/{job}/flags", "rank", "0.5", "Enter a whole number."),
        ("jobs/{job}/flags", "rank", "-1", "Ensure this value is greater than or equal to 0."),
        ("jobs/{job}/flags", "rank", "9" * 30, "Ensure this value is less than or equal to 2147483647."),
        ("jobs/{job}/flags", "open", "null", "true or false"),
        ("jobs/{job}/decisions", "iteration_min", "0.5", "Enter a whole number."),
    ],
)
def test_a_value_that_is_none_is_refused_by_name(
    path: str, field: str, found: str, expected: str, viewer: APIClient, job: int
) -> None:
    answer = refused(viewer.get(f"/api/v1/{path.format(job=job)}", {field: found}))
    assert (answer["status"], answer["field"], answer["found"], answer["expected"]) == (400, field, found, expected)


@pytest.mark.parametrize(
    "query",
    ["jobs?page_size=500", "jobs?state=running&state=failed", "jobs?name=", "jobs/{job}/flags?rank=0&open=True"],
)
def test_a_value_that_is_one_is_followed(query: str, viewer: APIClient, job: int) -> None:
    assert viewer.get(f"/api/v1/{query.format(job=job)}").status_code == 200


def test_the_document_has_the_bounds() -> None:
    paths = SchemaGenerator().get_schema(request=None, public=True)["paths"]
    said = {each["name"]: each["schema"] for each in paths["/api/v1/jobs/{id}/flags"]["get"]["parameters"]}
    assert said["page_size"] == {"type": "integer", "minimum": 1, "maximum": 500}
    assert said["rank"] == {"type": "integer", "minimum": 0, "maximum": 2147483647}


SAMPLES = {"batch-size", "learning", "0", "1", "9", "nothere", "ada"}
"""What the tables of roles have in the place of a parameter."""

OPEN = {"GET ", "GET me", "POST agents/enrol"}
BY_OTHER_KEYS = {"PUT jobs/{}/model"}
"""Shown by a worker, not by a person."""
NOT_IN_THE_DOCUMENT = {"GET schema", "GET docs"}


def test_every_operation_of_the_document_has_a_rule() -> None:
    """A new operation, be it a new method of an old address, needs a row in the tables of roles."""
    paths: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)["paths"]
    there = {
        f"{method.upper()} " + re.sub(r"\{\w+\}", "{}", path.removeprefix("/api/v1/"))
        for path, methods in paths.items()
        for method in methods
    }
    rows = [
        *(f"GET {path.partition('?')[0]}" for path in (*test_permissions.READS, *test_permissions.ADMINS_READ)),
        *test_permissions.WRITES,
        *test_permissions.IN_TEAMS,
    ]
    ruled = {"/".join("{}" if part in SAMPLES or "{" in part else part for part in row.split("/")) for row in rows}
    assert there == (ruled | OPEN | BY_OTHER_KEYS) - NOT_IN_THE_DOCUMENT


def test_a_number_in_a_path_that_no_database_holds_is_not_found(admin: APIClient) -> None:
    for path, operations in SchemaGenerator().get_schema(public=True)["paths"].items():
        numbered = re.sub(r"\{(\w+)\}", str(2**80), path)
        for method in operations.keys() & {"get", "post", "put", "patch", "delete"} if numbered != path else ():
            reply = admin.generic(method.upper(), numbered, "{}", content_type="application/json")
            assert reply.status_code < 500, f"{method} {numbered}"


@pytest.mark.parametrize(
    ("query", "field", "cure"),
    [
        ("jobs?limit=-1", "limit", "one of name, ordering, page, page_size, state, tag, team"),
        ("jobs?order=name", "order", "did you mean ordering?"),
        ("jobs?ordering=colour", "ordering", "each with or without -"),
        ("jobs?ordering=-id,", "ordering", "each with or without -"),
        ("jobs?page=-1", "page", "a number from 1 to 2147483647"),
        ("jobs?page=last", "page", "a number from 1 to 2147483647"),
        ("agents?page=99999999999", "page", "a number from 1 to 2147483647"),
        ("teams?q=a", "q", "one of page, page_size"),
        ("tokens?from=me", "from", "one of of, page, page_size"),
        ("jobs/{job}/logs?proces=w0", "proces", "did you mean process?"),
        ("jobs/{job}/logs/text?proces=w0", "proces", "did you mean process?"),
        ("jobs/{job}/metrics?metric=loss&last=3", "last", "one of metric, points, since, worker"),
        ("jobs/{job}/measurements?rank=0", "rank", "one of worker"),
        ("jobs/{job}?fields=name", "fields", "no query parameters"),
        ("me?x=1", "x", "no query parameters"),
    ],
)
def test_a_parameter_that_would_be_ignored_is_refused(
    query: str, field: str, cure: str, viewer: APIClient, job: int
) -> None:
    answer = refused(viewer.get(f"/api/v1/{query.format(job=job)}"))
    assert (answer["status"], answer["field"]) == (400, field)
    assert cure in answer["expected"]


def test_a_page_behind_the_last_one_reports_how_many_there_are(viewer: APIClient, job: int) -> None:
    answer = refused(viewer.get("/api/v1/jobs?page=2147483647"))
    assert (answer["status"], answer["detail"]) == (404, "there is no page 2147483647: the last one is 1")


def test_every_list_accepts_the_parameters_of_the_document(admin: APIClient, job: int) -> None:
    samples = {"page": "1", "page_size": "5", "ordering": "-id", "of": "me"}
    for path, operations in SchemaGenerator().get_schema(public=True)["paths"].items():
        parameters = operations.get("get", {}).get("parameters", [])
        names = {each["name"] for each in parameters if each["in"] == "query"}
        url = path.replace("{id}", str(job))
        if "page" in names and "{" not in url:
            reply = admin.get(url, {name: value for name, value in samples.items() if name in names})
            assert reply.status_code == 200, f"{url}: {reply.content!r}"


BEHIND_OTHER_KEYS = {"put /api/v1/jobs/{id}/model"}
"""Of processes: an admin is refused sooner."""

TAKE_WHAT_A_PAGE_HAS = re.compile(r"/(figures|comparisons)/|/(trace|report)$")
"""A page hands its state to its figures."""


def test_every_operation_refuses_parameters_that_the_document_does_not_have(admin: APIClient, job: int) -> None:
    """Also where nothing is listed, and where something is written: before the body is looked at."""
    lenient = set()
    for path, operations in SchemaGenerator().get_schema(public=True)["paths"].items():
        url = re.sub(r"\{\w+\}", str(job), path)
        for method in operations:
            reply = admin.generic(method.upper(), f"{url}?nowhere=1", "{}", content_type="application/json")
            if reply.status_code != 400 or "no query parameter 'nowhere'" not in refused(reply)["detail"]:
                lenient.add(f"{method} {path}")
    assert {one for one in lenient if not TAKE_WHAT_A_PAGE_HAS.search(one)} == BEHIND_OTHER_KEYS


def test_every_operation_accepts_the_parameters_of_the_document(admin: APIClient, job: int) -> None:
    for path, operations in SchemaGenerator().get_schema(public=True)["paths"].items():
        url = re.sub(r"\{\w+\}", str(job), path)
        for method, operation in operations.items():
            if names := [each["name"] for each in operation.get("parameters", []) if each["in"] == "query"]:
                query = urlencode(dict.fromkeys(names, "1"))
                reply = admin.generic(method.upper(), f"{url}?{query}", "{}", content_type="application/json")
                assert b"there is no query parameter" not in b"".join(reply), f"{method} {path}"
