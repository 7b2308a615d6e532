"""The OpenAPI document, and that the API keeps to it."""

import json
from typing import Any

import pytest
import schemathesis
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from rest_framework.test import APIClient
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from controlplane.jobs.models import Job
from tests.api.conftest import PLAIN, refused
from tests.support.examples import PROFILE, SHARES, examples
from tests.support.rows import SPEC, online_agent, submitted_job

KEYS = st.sampled_from([*SPEC, "labels", "limits", "emulate", "optimizer", "evaluate"]) | st.text(max_size=5)
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from([7, 0.5, "bsp"])
)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=8
)
NEARLY_SPECS = st.dictionaries(KEYS, JSON, max_size=3).map(lambda change: {**SPEC, **change})
EACH = max(2, round(3 * SHARES[PROFILE]))
"""Examples of each operation. The first is the simplest, which the tests of roles try, too; others are drawn."""
BOUNDED = settings(
    max_examples=examples(60),
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.django_db
def test_the_document_is_valid_and_complete(tmp_path: Any) -> None:
    call_command("spectacular", "--validate", "--fail-on-warn", "--file", str(tmp_path / "schema.yml"))


@pytest.mark.django_db
def test_the_document_is_made_once(viewer: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    first = viewer.get("/api/v1/schema")
    monkeypatch.setattr(SchemaGenerator, "get_schema", lambda *_, **__: pytest.fail("it was made again"))
    again = viewer.get("/api/v1/schema")
    assert (again.content, again["Content-Type"]) == (first.content, "application/vnd.oai.openapi")


@pytest.mark.django_db
def test_it_is_served_and_can_be_browsed(viewer: APIClient) -> None:
    schema, docs = viewer.get("/api/v1/schema"), viewer.get("/api/v1/docs")
    assert (schema.status_code, docs.status_code, b"swagger-ui" in docs.content) == (200, 200, True)


@pytest.mark.django_db
def test_the_top_leads_to_everything_below_it(viewer: APIClient) -> None:
    paths = SchemaGenerator().get_schema(request=None, public=True)["paths"]
    collections = {path.removeprefix("/api/v1/") for path in paths if path.count("/") == 3} - {""}
    assert viewer.get("/api/v1/").json().keys() == collections | {"schema", "docs"}


def test_every_operation_reports_how_it_refuses() -> None:
    paths = SchemaGenerator().get_schema(request=None, public=True)["paths"]
    silent = [
        f"{method} {path}"
        for path, operations in paths.items()
        for method, operation in operations.items()
        if "application/problem+json" not in operation["responses"].get("400", {}).get("content", {})
    ]
    assert silent == []


@BOUNDED
@given(document=JSON | NEARLY_SPECS)
@pytest.mark.django_db
def test_any_json_is_a_job_or_a_problem_with_a_field(document: Any, operator: APIClient, redis_url: str) -> None:
    reply = operator.post("/api/v1/jobs", _json(document), content_type="application/json")
    if reply.status_code == 202:
        assert Job.objects.filter(pk=reply.json()["id"]).exists()
    elif "the body is not JSON" not in refused(reply)["detail"]:
        found = refused(reply)
        assert (found["status"], {"field", "found", "expected"} <= set(found)) == (400, True)


@BOUNDED
@given(text=st.text(alphabet="ab:-[]{}&*!|>'\"#%@ \n\t0.~", max_size=40))
@pytest.mark.django_db
def test_any_text_as_yaml_is_a_job_or_a_problem(text: str, operator: APIClient, redis_url: str) -> None:
    reply = operator.post("/api/v1/jobs", text.encode(), content_type="application/yaml")
    assert reply.status_code == 202 or refused(reply)["status"] == 400


def _json(document: Any) -> bytes:
    return json.dumps(document).encode("utf-8", "surrogatepass")


@pytest.fixture
def served(transactional_db: None, redis_url: str, bearer: dict[str, str]) -> Any:
    """The API as a WSGI application, with one job and one machine in it."""
    submitted_job(User.objects.create_user("ada"))
    online_agent("m1")
    return schemathesis.openapi.from_wsgi("/api/v1/schema", get_wsgi_application(), headers=bearer | PLAIN)


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_answers_are_as_documented(served: Any, bearer: dict[str, str], mode: GenerationMode) -> None:
    checks = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
    operations = [found.ok() for found in served.get_all_operations()]
    taking = [one for one in operations if one.body or one.query or one.path_parameters or one.headers]
    for operation in operations if mode is GenerationMode.POSITIVE else taking:

        @settings(BOUNDED, max_examples=EACH, phases=[Phase.generate])
        @given(case=operation.as_strategy(generation_mode=mode))
        def answer(case: schemathesis.Case) -> None:
            case.validate_response(case.call(headers=bearer | PLAIN), checks=checks)

        answer()
    assert len(operations) > len(taking) > 15
