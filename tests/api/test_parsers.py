"""What strangers may have parsed: JSON where no one is known, YAML by libyaml alone, and little of either."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from django.db import connection
from django.urls import URLPattern, URLResolver, get_resolver
from rest_framework.test import APIClient

from controlplane.api import parsers
from controlplane.api import yaml as plain_yaml
from controlplane.api.limits import OPEN_BYTES
from controlplane.api.parsers import JsonParser
from controlplane.api.yaml import MAX_DEPTH, MAX_NODES, MAX_YAML, YamlRefused, load_yaml
from tests.api.conftest import problem, refused

YAML = "application/yaml"


def views(resolver: URLResolver) -> Iterator[Any]:
    for pattern in resolver.url_patterns:
        if isinstance(pattern, URLResolver):
            yield from views(pattern)
        elif isinstance(pattern, URLPattern) and hasattr(pattern.callback, "cls"):
            yield pattern.callback.cls  # type: ignore[union-attr]


def test_every_view_without_a_user_name_takes_json_alone() -> None:
    ours = {view for view in views(get_resolver()) if view.__module__.startswith("controlplane.")}
    unasked = {view for view in ours if not view.authentication_classes}
    assert {"EnrolView", "NowhereView", "IndexView"} <= {view.__name__ for view in unasked}
    assert {view.__name__: list(view.parser_classes) for view in unasked} == {
        view.__name__: [JsonParser] for view in unasked
    }


@pytest.mark.django_db
def test_yaml_is_not_parsed_for_a_machine_that_joins(anybody: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsers, "load_yaml", lambda text: pytest.fail("YAML was parsed"))
    found = refused(anybody.post("/api/v1/agents/enrol", "a: [1, 1]", content_type=YAML))
    assert (found["status"], found["detail"].rpartition(": ")[2]) == (415, "application/json")


@pytest.mark.django_db
def test_what_a_machine_sends_to_join_is_small(anybody: APIClient) -> None:
    body = json.dumps({"token": "t", "name": "m", "more": [1] * OPEN_BYTES})
    found = refused(anybody.post("/api/v1/agents/enrol", body, content_type="application/json"))
    assert found == problem(413, f"the body exceeds the limit of {OPEN_BYTES} bytes")


@pytest.mark.django_db
@pytest.mark.parametrize("media", [YAML, "application/json"])
def test_no_one_s_document_is_parsed_before_they_are_known(
    anybody: APIClient, monkeypatch: pytest.MonkeyPatch, media: str
) -> None:
    monkeypatch.setattr(parsers, "_text", lambda *_: pytest.fail("a body was read"))
    assert anybody.post("/api/v1/jobs", "a: 1", content_type=media).status_code == 401


def test_yaml_is_read_by_libyaml_s_loader() -> None:
    assert plain_yaml.Loader is yaml.CSafeLoader
    assert issubclass(plain_yaml._PlainLoader, yaml.CSafeLoader)


def test_without_libyaml_no_yaml_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_yaml, "Loader", None)
    with pytest.raises(plain_yaml.NoYaml, match="send JSON, or install a PyYAML wheel"):
        load_yaml("a: 1")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[" * 100_000, f"nested more than {MAX_DEPTH} levels deep"),
        ("{a: " * 50_000, f"nested more than {MAX_DEPTH} levels deep"),
        ("- " * 50_000, f"nested more than {MAX_DEPTH} levels deep"),
        ("[" * MAX_DEPTH + "[", f"nested more than {MAX_DEPTH} levels deep"),
        ("a: [" + "1," * MAX_NODES + "]", f"more than {MAX_NODES} values"),
        ("a: &a [1]\nb: [*a, *a]", "anchors and aliases are not supported"),
        ("b: *a", "anchors and aliases are not supported"),
        ("a: " + "x" * MAX_YAML, f"above the limit of {MAX_YAML}"),
        ("a: 1" + ":1" * 1000, "a number of 2001 characters"),
        ("a: 1" + ":1" * 1000 + ".5", "a number of 2003 characters"),
        ("a: !!python/object:os.system {}", "could not determine a constructor"),
        (
            "workers: 4\nname: a\nworkers: 5",
            "the key 'workers' occurs twice in one mapping; remove one, line 3, column 1",
        ),
        ("a: [{b: 1, c: {b: 2}, b: 3}]", "the key 'b' occurs twice"),
        ("a: 1\n---\nb: 2", "expected a single document"),
    ],
)
def test_yaml_that_costs_more_than_a_spec_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(YamlRefused, match=sentence):
        load_yaml(text)


def test_a_spec_for_many_machines_is_read() -> None:
    text = "emulate:\n" + "- {samples_per_second: 250}\n" * 5000
    assert len(load_yaml(text)["emulate"]) == 5000
    assert load_yaml("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert load_yaml("<<: {a: 1}") == {"<<": {"a": 1}}


@pytest.mark.django_db
def test_a_body_that_is_packed_is_refused_with_the_cure(operator: APIClient) -> None:
    headers = {"Content-Encoding": "gzip"}
    found = refused(operator.post("/api/v1/jobs", b"\x1f\x8b", content_type="application/json", headers=headers))
    assert (found["status"], found["detail"]) == (
        415,
        "Content-Encoding 'gzip' is not supported: send the body uncompressed",
    )


@pytest.mark.django_db
def test_a_document_of_too_many_values_is_refused(operator: APIClient) -> None:
    body = json.dumps({"emulate": [1] * 200_001})
    found = refused(operator.post("/api/v1/jobs", body, content_type="application/json"))
    assert (found["status"], found["detail"]) == (400, "spec: expected at most 200000 values in all")


@pytest.mark.django_db
def test_a_document_is_parsed_before_the_database_is_held(operator: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []

    def parsed(text: str) -> Any:
        held.append(len(connection.savepoint_ids))
        return {}

    monkeypatch.setattr(parsers, "load_yaml", parsed)
    operator.post("/api/v1/jobs", "a: 1", content_type=YAML)
    assert held == [0]


@pytest.mark.django_db
def test_json_with_a_repeated_key_is_refused_as_in_yaml(operator: APIClient) -> None:
    body = '{"name": "digits", "workers": 4, "elastic": {"restarts": 1, "restarts": 2}}'
    found = refused(operator.post("/api/v1/jobs", body, content_type="application/json"))
    expected = "the body is not JSON: the key 'restarts' is repeated; name each key once"
    assert (found["status"], found["detail"]) == (400, expected)
